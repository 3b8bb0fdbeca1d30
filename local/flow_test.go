package local_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local"
)

// The callers that a trusted tenant tells apart have places of their own in the queue. Others' have not.
func TestFairnessIDsOfATrustedTenantAreToldApart(t *testing.T) {
	for trusted, want := range map[bool][]string{true: {"default user-1", "default user-2"}, false: {"default"}} {
		w := newVLLM(t, "w1")
		w.kv = 4
		a := start(t, func(c *local.Config) {
			c.Spec = &spec.Spec{Tenants: []spec.Tenant{{Name: spec.TenantAlone, Weight: 1, Trusted: trusted}}}
		}, w)
		w.set("hold")
		var wg sync.WaitGroup
		for _, id := range []string{"user-1", "user-2"} {
			wg.Go(func() { send(t, a, "X-Gateway-Inference-Fairness-Id", id) })
		}
		eventually(t, "both are there, each under its name", func() bool {
			var seen []string
			n := 0
			for _, m := range a.Queues() {
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
