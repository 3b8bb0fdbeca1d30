package telemetry_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spillway-lb/spillway/internal/telemetry"
)

// TestKnown: many ask for the same at once, and each is found once.
func TestKnown(t *testing.T) {
	type key struct {
		name string
		n    int
	}
	var found atomic.Int32
	k := telemetry.NewKnown(func(k key) *key { found.Add(1); return &k })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 400 {
				want := key{[]string{"a", "b"}[i%2], i / 2 % 50}
				if got := k.Of(want); *got != want {
					t.Errorf("%v is not %v", *got, want)
				}
			}
		})
	}
	wg.Wait()
	if found.Load() != 100 {
		t.Errorf("looked for 100 members %d times", found.Load())
	}
}
