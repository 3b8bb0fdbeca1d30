package local_test

import (
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// Only tenants of one prefix group are sent to where another of them has left its prompt's beginning.
func TestPrefixesAreSharedInsideAGroupAndNowhereElse(t *testing.T) {
	p := newPlanet(t)
	a := start(t, p.join, newVLLM(t, "w1"), newVLLM(t, "w2"), newVLLM(t, "w3"), newVLLM(t, "w4"))
	text := strings.Replace(specText, "tenants: []", "tenants: [{name: ann, prefix_group: team}, {name: bob, prefix_group: team}, {name: eve}, {name: team}]", 1)
	text = strings.Replace(text, "least_connections", "prefix_affinity", 1)
	p.directive.Store(&uplink.Directive{Index: 5, SpecVersion: 1, Spec: []byte(text)})
	p.parent.Wake()
	eventually(t, "the spec in force", func() bool { return a.SpecVersion() == 1 })
	body := strings.Replace(whole, "hi", strings.Repeat("the same long beginning ", 200), 1)
	_, _, err := p.post(p.gateway, a, relay.Hop{Tenant: "ann"}, body)
	if err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]bool{"ann": true, "bob": true, "eve": false, "team": false, "stranger": false} {
		if got := a.KnowsPrefix(tenant, "llama-3.1-8b", body); got != want {
			t.Errorf("the beginning of ann's prompt is known under %s: %v", tenant, got)
		}
	}
}
