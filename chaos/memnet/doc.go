// Package memnet is a network inside one process: listeners and connections that are memory. Real servers and clients run
// over it inside a testing/synctest bubble, where a connection of the system would keep time from passing: whole tiers
// then live through minutes in the time that their computing takes, the same on a busy machine as on an idle one.
//
// A connection holds up to 64 KiB on its way in each direction, as a socket does, and then pushes back. It has no delay
// and loses nothing.
package memnet
