// Package memnet is a network in the memory of one process. Real servers and clients run over it inside a
// testing/synctest bubble, where a connection of the system would keep virtual time from advancing: whole tiers then
// simulate minutes in the time of their computation, with equal results on a busy and on an idle machine.
//
// A connection holds up to 64 KiB in transit in each direction, as a socket does, and then blocks the writer. It has
// no delay by default and loses nothing. Datagrams take the configured delay, and are lost without a listener or when
// its queue is full.
//
// A Host is one machine on the network: its connections come from its own address, and CutHost disconnects it. The
// package does not decide what is cut, or when.
package memnet
