// Command gosdk3 sends requests to a fleet with github.com/openai/openai-go/v3, unmodified. That package refuses redirects
// to another origin than its base URL, so a global node must pass its requests on. With the argument "never" it expects the
// error that clients get from a service with redirect_proxy: never. It is a module of its own, so that Spillway does not
// depend on that package.
package main
