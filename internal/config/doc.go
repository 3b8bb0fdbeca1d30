// Package config reads the config file of one process: its role, its name, its listeners and its peers. Decode
// returns a Global, Regional, Local or SimulatedWorker, and reports every mistake with its position and a
// correction. DescribeConfig describes all keys, WriteSchema writes them as JSON Schema, WriteExample writes an example.
//
// State shared by the tiers is in the spec, which is replicated by Raft. Only LoadFile and CheckFile read from
// disk; the package never opens a socket and starts nothing.
package config
