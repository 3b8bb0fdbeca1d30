//go:build !linux

package pick

import (
	"testing"
	"time"
)

var clockStart = time.Now()

// threadTime returns wall-clock time where thread CPU time is not available.
func threadTime(testing.TB) time.Duration { return time.Since(clockStart) }
