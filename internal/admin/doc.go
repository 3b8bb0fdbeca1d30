// Package admin is how operators look at a node and change what it serves: the JSON that travels, the server that each
// tier mounts on a unix socket or behind mutual TLS, the listener for metrics and health, and the client that the
// commands use.
//
// It decides who may call (the socket's owner, or a certificate of the operator role) and what a bad call is told. It
// never decides what a call does: that is the Backend of the tier, and a verb that a tier does not have is refused with
// the name of the tier that has it.
package admin
