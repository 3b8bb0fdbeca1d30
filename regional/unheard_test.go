package regional

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
)

const twoRegions = `
zone: {name: spillway.test., nameservers: [{name: ns1.spillway.test., addresses: [192.0.2.1]}]}
services: [{name: chat.spillway.test.}]
regions:
  - {name: fra, place: {lat: 50, lon: 9}, zones: [a], gateways: [{name: fra-gw, addresses: [10.0.0.1], url: "http://10.0.0.1:80"}]}
  - {name: ams, place: {lat: 52, lon: 5}, zones: [a], gateways: [{name: ams-gw, addresses: [10.0.0.2], url: "http://10.0.0.2:80"}]}
models: [{name: m}]
tenants: [{name: acme}]
`

// TestSpillsGoOnWithoutTheGlobalTier: where nobody tells of peers any more, one that was well by the last word is asked for a while.
// One whose own word was old already then, or that a connection failed to, is not; nor one that only a file tells of.
func TestSpillsGoOnWithoutTheGlobalTier(t *testing.T) {
	s, err := spec.Decode("the test's spec", []byte(twoRegions))
	if err != nil {
		t.Fatal(err)
	}
	models := func(ahead, headroom int64) []capacity.Model {
		return []capacity.Model{{
			Name: "m", Ready: 1, Total: 1, Ahead: [3]int64{ahead, ahead, ahead}, Headroom: [3]int64{headroom, headroom, headroom},
			Hardware: []capacity.Hardware{{Name: "h100", Ready: 1, PrefillRate: 10_000, DecodeRate: 1000}}, MaxContext: 100_000,
		}}
	}
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		age, silent time.Duration // of the peer's word when it was told, and since then
		suspect     time.Duration // since a connection to it failed
		kept        bool
		headroom    int64
		spills      bool
	}{
		"while told":                  {age: time.Second, silent: time.Second, headroom: 9000, spills: true},
		"as soon as nobody does":      {age: time.Second, silent: 3 * time.Second, headroom: 9000, spills: true},
		"a minute later":              {age: time.Second, silent: time.Minute, headroom: 9000, spills: true},
		"not for ever":                {age: time.Second, silent: 11 * time.Minute, headroom: 9000},
		"not where it had none":       {age: time.Second, silent: time.Minute},
		"not if it was silent itself": {age: 4 * time.Second, silent: 3 * time.Second, headroom: 9000},
		"nor a moment after that":     {age: 2900 * time.Millisecond, silent: 200 * time.Millisecond, headroom: 9000},
		"not while it cannot be had":  {age: time.Second, silent: time.Minute, headroom: 9000, suspect: 5 * time.Second},
		"and then again":              {age: time.Second, silent: time.Minute, headroom: 9000, suspect: 31 * time.Second, spills: true},
		"not by a file alone":         {age: time.Second, silent: time.Minute, headroom: 9000, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLab(LabConfig{Name: "fra-gw", Region: "fra", Spec: s, Seed: 1}, begun)
			l.Obey(&uplink.Directive{Index: 1, Peers: []uplink.Peer{{
				Region: "ams", Gateways: []uplink.PeerGateway{{Name: "ams-gw", Endpoint: "ams:1"}}, Age: c.age, RTT: 10 * time.Millisecond,
				Summary: &capacity.Summary{Path: capacity.Path{Region: "ams"}, Models: models(0, c.headroom)},
			}}}, s, begun)
			l.g.state.Load().kept = c.kept
			now := begun.Add(c.silent)
			l.Hear(&capacity.Summary{Path: capacity.Path{Region: "fra", Zone: "a", Instance: "l1"}, Endpoint: "fra-a:1", Boot: 1, Seq: 1, Models: models(100_000, 0)}, now)
			if c.suspect > 0 {
				l.Look(now.Add(-c.suspect))
				l.Suspect("ams:1", now.Add(-c.suspect))
			}
			l.Look(now)
			r, refusal := l.Take(&LabAsk{Tenant: "acme", Model: "m", Prompt: 1000, MaxTokens: 10}, now)
			if refusal != nil {
				t.Fatal(refusal)
			}
			if v, ok := l.Choose(r, now); !ok || v.Spilled() != c.spills {
				t.Errorf("%+v, %v: spilled is %v, want %v", v, ok, v.Spilled(), c.spills)
			}
		})
	}
}
