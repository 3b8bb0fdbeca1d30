package telemetry_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spillway-lb/spillway/internal/telemetry"
)

// TestMemberCache: concurrent lookups of the same keys look each member up once.
func TestMemberCache(t *testing.T) {
	type key struct {
		name string
		n    int
	}
	var found atomic.Int32
	k := telemetry.NewMemberCache(func(k key) *key { found.Add(1); return &k })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 400 {
				want := key{[]string{"a", "b"}[i%2], i / 2 % 50}
				if got := k.FindMember(want); *got != want {
					t.Errorf("%v is not %v", *got, want)
				}
			}
		})
	}
	wg.Wait()
	if found.Load() != 100 {
		t.Errorf("100 members were looked up %d times", found.Load())
	}
}
