// Package admin contains the admin API of a node: the JSON types, the server that each tier opens on a unix socket or
// behind mutual TLS, the listener for metrics and health checks, and the client of the commands.
//
// It authenticates callers (the owner of the socket, an operator's certificate or a bearer token), checks their role and
// validates calls. The Backend of the tier implements the calls; a call that a tier does not support is refused.
package admin
