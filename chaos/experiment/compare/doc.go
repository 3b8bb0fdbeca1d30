// Command compare compares the policies of one zone: a zone without gateways and with eight simulated workers, of
// which one is slowed, one passes health checks but emits nothing, and one leaks memory until it dies, gets the same
// requests at the same times under each policy. It prints one table: errors, times to first token, goodput, and each
// worker's share. Then it shows the effect of one tenant's flood on another, on slow and on fast GPUs.
//
// As a command it runs on loopback in real time. As a test (make compare) every run is in virtual time, over a
// network in memory, with the same tiers and workers: a minute takes seconds, and a busy machine changes no result.
//
// The tests in this package hold the bounds of its figures.
package main
