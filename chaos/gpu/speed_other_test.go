//go:build !unix

package gpu

import (
	"testing"
	"time"
)

var processStart = time.Now()

// cpuTime is the wall time on systems where the CPU time of a process is not available.
func cpuTime(*testing.B) time.Duration { return time.Since(processStart) }
