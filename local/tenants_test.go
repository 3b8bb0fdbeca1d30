package local_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/local"
)

// Only tenants of one prefix group are sent to where another of them has left its prompt's beginning.
func TestPrefixesAreSharedOnlyWithinAPrefixGroup(t *testing.T) {
	p := newGatewayHarness(t)
	a := startAgent(t, p.joinGateway, newFakeVLLM(t, "w1"), newFakeVLLM(t, "w2"), newFakeVLLM(t, "w3"), newFakeVLLM(t, "w4"))
	text := strings.Replace(specText, "tenants: []", "tenants: [{name: ann, prefix_group: team}, {name: bob, prefix_group: team}, {name: eve}, {name: team}]", 1)
	text = strings.Replace(text, "least_connections", "prefix_affinity", 1)
	p.directive.Store(&uplink.Directive{Index: 5, SpecVersion: 1, Spec: []byte(text)})
	p.parent.PushDirectives()
	testkit.Eventually(t, "the spec in force", func() bool { return a.SpecVersion() == 1 })
	body := strings.Replace(nonStreamingChat, "hi", strings.Repeat("the same long beginning ", 200), 1)
	_, _, err := p.postFromGateway(p.gateway, a, forward.Hop{Tenant: "ann"}, body)
	if err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]bool{"ann": true, "bob": true, "eve": false, "team": false, "stranger": false} {
		if got := a.HasCachedPrefix(tenant, "llama-3.1-8b", body); got != want {
			t.Errorf("the beginning of ann's prompt is known under %s: %v", tenant, got)
		}
	}
}

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
