package local_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
)

// TestTrustedTenantFairnessIDsQueueSeparately: the callers that a trusted tenant distinguishes are queued separately.
// Those of other tenants are not.
func TestTrustedTenantFairnessIDsQueueSeparately(t *testing.T) {
	for trusted, want := range map[bool][]string{true: {"default user-1", "default user-2"}, false: {"default"}} {
		w := newFakeVLLM(t, "w1")
		w.kvBlocks = 4
		a := startAgent(t, func(c *local.Config) {
			c.Spec = &spec.Spec{Tenants: []spec.Tenant{{Name: spec.DefaultTenant, Weight: 1, Trusted: trusted}}}
		}, w)
		w.setMode("hold")
		var wg sync.WaitGroup
		for _, id := range []string{"user-1", "user-2"} {
			wg.Go(func() { postWithHeader(t, a, "X-Gateway-Inference-Fairness-Id", id) })
		}
		testkit.Eventually(t, "both are there, each under its name", func() bool {
			var seen []string
			n := 0
			for _, m := range a.DescribeQueues() {
				for _, c := range m.Classes {
					for _, x := range c.Tenants {
						seen = append(seen, x.Tenant)
						n += x.Waiting + x.Running
					}
				}
			}
			slices.Sort(seen)
			return n == 2 && slices.Equal(seen, want)
		})
		for range 2 {
			w.release <- struct{}{}
		}
		wg.Wait()
	}
}
