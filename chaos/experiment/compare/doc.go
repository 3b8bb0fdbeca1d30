// Package compare compares the policies of one zone: a zone without gateways and with eight simulated workers, of which
// one is slowed, one passes health checks but emits nothing, and one leaks memory until it dies, gets the same requests
// at the same times under each policy. `make compare` prints one table: errors, times to first token, goodput, and each
// worker's share. Then it shows the effect of one tenant's flood on another, on slow and on fast GPUs.
//
// The package has only tests. Every run is in virtual time, over a network in memory, with the tiers and workers of
// production: a minute takes seconds, and a busy machine changes no result. The other tests hold the bounds of its
// figures.
package compare
