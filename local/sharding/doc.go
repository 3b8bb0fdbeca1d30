// Package sharding decides which of a zone's local instances serves which worker.
//
// All instances of a zone know and scrape all its workers. One live instance serves each worker and reports its capacity,
// chosen by rendezvous hashing: when an instance dies only its own workers move, and they return when it does. The
// gateways report which instances are live, since every instance reports to them. While no gateway is connected, the last
// known instances that answer heartbeats count as live. PeerTable holds these reports; Assignment is the result.
//
// Two instances may briefly both own a worker. That is harmless, since each sees the other's load in its scrapes. A worker
// without owner would be worse, so when in doubt an instance keeps ownership. The package never sends anything and ignores
// how loaded an instance is.
package sharding
