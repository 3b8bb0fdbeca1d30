package main

import "github.com/spillway-lb/spillway/chaos/machine"

// residentMB is the memory of a process in MB, 0 where the system does not tell.
func residentMB(pid int) int64 {
	n, err := machine.Resident(pid)
	if err != nil {
		return 0
	}
	return n >> 20
}
