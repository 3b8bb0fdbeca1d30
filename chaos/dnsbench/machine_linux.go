package main

import (
	"golang.org/x/sys/unix"

	"github.com/spillway-lb/spillway/chaos/dnsload"
)

// alone keeps this thread on one core, and asks for this process and its children to go before all else, which the
// system may refuse.
func alone(core int) error {
	dnsload.Priority()
	var set unix.CPUSet
	set.Set(core)
	return unix.SchedSetaffinity(0, &set)
}
