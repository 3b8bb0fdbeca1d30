// Package fleet lays out a whole planet of real tiers on loopback: which node listens where, the certificates, the spec
// and the config file of each, and then runs it, in this process or as one process for each node.
//
// It decides addresses and names. It never reaches into a tier: nodes are started from the same files that operators
// write, so a planet that works here works from those files.
package fleet
