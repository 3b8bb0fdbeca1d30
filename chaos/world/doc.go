// Package world is a planet of the real tiers inside one process and one testing/synctest bubble: global nodes with Raft,
// steering, DNS and redirects, gateways, zones and stand-in workers, over a network in memory. Minutes of it pass in the
// time that their computing takes, and a busy machine changes nothing.
//
// Everything that decides is what runs in production; only sockets are stood in for. It says who is where and what is
// sent, never what should come of it: that is for the experiments and tests that use it.
package world
