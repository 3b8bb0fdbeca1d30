package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestGrowDescriptors reads the size of the table from the kernel.
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
	if n := len(open(t)); n > 100 {
		t.Errorf("%d descriptors are open: the one that made the table grow was left", n)
	}
}

func open(t *testing.T) []os.DirEntry {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return fds
}

// TestKeepCalmHoldsUpNoCollection keeps the process busy, so that the processor is held, and stops the world often.
func TestKeepCalmHoldsUpNoCollection(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		keepCalm(ctx)
	}()
	for end := time.Now().Add(10 * time.Second); runtime.GOMAXPROCS(0) == before; {
		if time.Now().After(end) {
			t.Fatal("a busy process was never calmed")
		}
	}
	defer runtime.GOMAXPROCS(before)
	began := time.Now()
	for range 20 {
		runtime.GC()
	}
	if took := time.Since(began); took > 10*time.Second { // a second each, if each waited for the sleep's end
		t.Errorf("20 collections took %v", took)
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Error("it outlives its context")
	}
}
