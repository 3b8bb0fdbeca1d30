// Command gosdk asks a planet by github.com/openai/openai-go, unmodified: a gateway, and through the redirect of a global
// node. It is a module of its own, so that Spillway does not depend on that one. It never decides how a client should
// behave: the package does.
package main
