// Package spill shows what becomes of a region that loses half its workers under load, with spilling to its peers and
// without: how long its clients wait, who serves them, what the peers refuse, and whether work goes to and fro. Real
// gateways, zones and global nodes run in virtual time (package world).
//
// Clients keep to their region's gateways, so that steering cannot help: what is seen is spilling alone. It never decides
// anything itself.
package spill
