package main

import (
	"golang.org/x/sys/unix"

	"github.com/spillway-lb/spillway/chaos/bench/dnsload"
)

// pinToCore pins this thread to one core, and requests a high priority for this process and its children, which the
// system may refuse.
func pinToCore(core int) error {
	dnsload.RaisePriority()
	var set unix.CPUSet
	set.Set(core)
	return unix.SchedSetaffinity(0, &set)
}
