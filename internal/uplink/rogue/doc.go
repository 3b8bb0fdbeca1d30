// Package rogue misbehaves towards a parent as a child with a good certificate can: it floods, lies about what it is, or
// sends garbage, and comes back whenever it is thrown out. It stands here because QUIC stays behind package uplink; it is
// for benches, and no tier may import it. It never decides what a parent makes of it.
package rogue
