package routing_test

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/regional/routing"
)

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
