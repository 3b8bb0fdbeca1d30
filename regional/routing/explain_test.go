package routing_test

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/regional/routing"
)

// TestExplanationDistinguishesDrainFromNotReady: a drained zone or region is called so, though its workers take nothing, and a
// peer without a gateway that is reachable has not failed the request.
func TestExplanationDistinguishesDrainFromNotReady(t *testing.T) {
	ready := testModel("m", 0)
	none := withChange(ready, func(m *capacity.ModelCapacity) { m.Ready = 0 })
	away := func(p routing.PeerRegion) routing.PeerRegion { p.Gateways = nil; return p }
	drained := func(p routing.PeerRegion) routing.PeerRegion { p.Drained = true; return p }
	ams := func(ms ...capacity.ModelCapacity) routing.PeerRegion {
		return testPeer("ams", 10*time.Millisecond, ms...)
	}
	for _, c := range []struct {
		name, candidate, want string
		view                  routing.RoutingView
	}{
		{"a drained zone that reports no model", "fra/b/l1", routing.IneligibleDraining, routing.RoutingView{Locals: []routing.LocalInstance{withChange(testLocal("b"), func(l *routing.LocalInstance) { l.Drained = true })}}},
		{"a drained zone that has no ready worker", "fra/b/l1", routing.IneligibleDraining, routing.RoutingView{Locals: []routing.LocalInstance{withChange(testLocal("b", none), func(l *routing.LocalInstance) { l.Drained = true })}}},
		{"a zone without the model", "fra/b/l1", routing.IneligibleModel, routing.RoutingView{Locals: []routing.LocalInstance{testLocal("b")}}},
		{"a drained region that reports no model", "ams", routing.IneligibleDraining, routing.RoutingView{Peers: []routing.PeerRegion{drained(ams())}}},
		{"a drained region without a reachable gateway", "ams", routing.IneligibleDraining, routing.RoutingView{Peers: []routing.PeerRegion{drained(away(ams(ready)))}}},
		{"a region without a reachable gateway", "ams", routing.IneligibleNoGateway, routing.RoutingView{Peers: []routing.PeerRegion{away(ams(ready))}}},
		{"a region without the model", "ams", routing.IneligibleModel, routing.RoutingView{Peers: []routing.PeerRegion{ams()}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var rec explain.Explanation
			routing.ChooseRoute(testQuery(), &c.view, time.Now(), newRNG(), &rec)
			for _, x := range rec.Candidates {
				if x.Name == c.candidate {
					if x.IneligibleReason != c.want {
						t.Errorf("dropped for %q, want %q", x.IneligibleReason, c.want)
					}
					return
				}
			}
			t.Errorf("%s is not among the candidates %+v", c.candidate, rec.Candidates)
		})
	}
}

// TestGradualDrainKeepsItsShare: a zone keeps the share of requests that its drain leaves, and a session that has left does not come back.
func TestGradualDrainKeepsItsShare(t *testing.T) {
	view := func(share float64) *routing.RoutingView {
		v := &routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", testModel("m", 0)), testLocal("b", testModel("m", 20_000))}} // a is the sooner one
		v.Locals[0].SetDrainShare(share)
		return v
	}
	r := newRNG()
	for _, share := range []float64{1, 0.75, 0.5, 0.25, 0} {
		n := 0
		for range 4000 {
			if v, ok := routing.ChooseRoute(testQuery(), view(share), time.Time{}, r, nil); ok && v.Path.Zone == "a" {
				n++
			}
		}
		if got := float64(n) / 4000; got < share-0.03 || got > share+0.03 {
			t.Errorf("with a share of %v the zone gets %v of the requests", share, got)
		}
	}
	for session := range uint64(500) {
		left := false
		for _, share := range []float64{1, 0.9, 0.7, 0.5, 0.3, 0.1, 0} {
			q := testQuery()
			q.Session = session + 1
			v, _ := routing.ChooseRoute(q, view(share), time.Time{}, r, nil)
			if left && v.Path.Zone == "a" {
				t.Fatalf("session %d comes back", session)
			}
			left = v.Path.Zone == "b"
		}
		if !left {
			t.Fatalf("session %d stays in a drained zone", session)
		}
	}
}
