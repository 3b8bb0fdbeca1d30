//go:build !linux

package pick

import (
	"testing"
	"time"
)

var started = time.Now()

// threadTime is the wall clock where there is no better one.
func threadTime(testing.TB) time.Duration { return time.Since(started) }
