//go:build !linux && !darwin

package testkit

import "time"

var processStart = time.Now()

// CPUTime returns the wall time on systems where the CPU time of a process is not available.
func CPUTime() time.Duration { return time.Since(processStart) }

// ThreadTime returns the wall time on systems where the CPU time of a thread is not available.
func ThreadTime() time.Duration { return time.Since(processStart) }
