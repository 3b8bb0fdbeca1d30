// Command gosdk sends requests to a fleet with github.com/openai/openai-go, unmodified: to a gateway, and through the
// redirect of a global node. It is a module of its own, so that Spillway does not depend on that package. What a client does
// about an error is the package's behaviour, not the command's.
package main
