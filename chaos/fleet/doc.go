// Package fleet lays out a whole fleet of real tiers on loopback: the addresses of all nodes, the certificates, the
// spec and the config file of each. It then runs them, in this process or as one process per node.
//
// It chooses addresses and names. It does not access the internals of a tier: nodes are started from the same files
// that operators write, so a fleet that works here works from those files.
package fleet
