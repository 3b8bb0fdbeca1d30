package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/timed"
)

// TestGrowDescriptors reads the size of the descriptor table from /proc/self/status.
func TestGrowDescriptors(t *testing.T) {
	const want = 4096
	growDescriptors(want)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "FDSize:"); ok {
			if _, err := fmt.Sscan(rest, &size); err != nil {
				t.Fatal(err)
			}
		}
	}
	if size < want {
		t.Errorf("the table has room for %d descriptors, want %d", size, want)
	}
	if n := len(listOpenDescriptors(t)); n > 100 {
		t.Errorf("%d descriptors are open: the one that made the table grow was not closed", n)
	}
}

func listOpenDescriptors(t *testing.T) []os.DirEntry {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return fds
}

// TestSchedulerKeepAliveDoesNotDelayGC runs garbage collections, which stop the world, while a processor is held.
func TestSchedulerKeepAliveDoesNotDelayGC(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runSchedulerKeepAlive(ctx)
	}()
	for end := time.Now().Add(testTimeout); runtime.GOMAXPROCS(0) == before; {
		if time.Now().After(end) {
			t.Fatal("no processor was added in a busy process")
		}
	}
	defer runtime.GOMAXPROCS(before)
	began := time.Now()
	for range 20 {
		runtime.GC()
	}
	timed.AssertWithin(t, "20 collections", time.Since(began), 10*time.Second) // a second each, if each waited for the end of the sleep
	cancel()
	select {
	case <-ended:
	case <-time.After(testTimeout):
		t.Error("it does not stop when its context ends")
	}
}
