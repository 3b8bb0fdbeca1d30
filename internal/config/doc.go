// Package config reads the config file of one process: which role it plays, what it is called, where it listens and
// whom it knows. It decides whether a file is valid and says of every mistake where it is and what to write instead.
//
// It holds nothing that the tiers share: that is the spec, which travels through Raft. Only LoadFile touches the disk;
// nothing here opens a socket or starts anything.
package config
