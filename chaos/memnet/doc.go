// Package memnet is a network inside one process: listeners and connections that are memory. Real servers and clients run
// over it inside a testing/synctest bubble, where a connection of the system would keep time from passing: whole tiers
// then live through minutes in the time that their computing takes, the same on a busy machine as on an idle one.
//
// A connection holds up to 64 KiB on its way in each direction, as a socket does, and then pushes back. It has no delay
// and loses nothing. Datagrams take as long as they are told to, and are lost where nobody listens or too many wait.
//
// A Host is what one machine sees of it: its connections come from its own address, and Cut takes the machine off the
// network. Nothing here decides what is cut, or when.
package memnet
