//go:build !unix

package gpu

import (
	"testing"
	"time"
)

var began = time.Now()

// cpuTime is the wall's time where a process cannot tell its own.
func cpuTime(*testing.B) time.Duration { return time.Since(began) }
