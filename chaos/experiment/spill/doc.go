// Package spill measures a region that loses half its workers under load, with and without spilling to its peers: how
// long its clients wait, which regions serve them, what the peers refuse, and whether requests are spilled back. Real
// gateways, zones and global nodes run in virtual time (chaos/fleet).
//
// Clients use their region's gateways only, so that steering has no effect and the result is that of spilling alone.
package spill
