//go:build !unix

package sim

import (
	"testing"
	"time"
)

// cpuTime is not available on this system.
func cpuTime(*testing.B) time.Duration { return 0 }
