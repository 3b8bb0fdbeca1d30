// Package fleet runs a whole fleet of real tiers: global nodes with Raft, steering, DNS and redirects, gateways, zones
// and simulated workers. A Layout is the number of nodes of each kind; there are two ways to run it.
//
// # On loopback
//
// WriteFiles writes a Layout to a directory: the addresses of all nodes, certificates, the spec and one config file for
// each node, the same files that operators write. RunInProcess runs the nodes in this process, SpawnAll and SpawnNodes
// run one process for each. A fleet that works here works from those files.
//
// # In memory
//
// RunInMemory runs a Layout inside one process and one testing/synctest bubble, over a MemoryNetwork instead of sockets,
// which would keep virtual time from advancing. It simulates minutes in the time of their computation, with equal results
// on a busy and on an idle machine. All decisions are made by production code; only sockets are replaced.
//
// A connection of a MemoryNetwork holds up to 64 KiB in transit in each direction, as a socket does, and then blocks the
// writer. It has no delay by default and loses nothing. Datagrams take the configured delay, and are lost without a
// listener or when its queue is full. A MemoryHost is one machine: its connections come from its own address, and CutHost
// disconnects it.
//
// The package sets up the fleet and sends requests. What is cut, stopped or expected is decided by the experiments and
// tests that use it.
package fleet
