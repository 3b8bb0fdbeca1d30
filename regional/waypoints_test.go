package regional

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional/zone"
)

// What was spilled stands against the peer until its summary, as old as the directive says it is, must count it; not longer,
// or it would count twice.
func TestSpillsStandUntilThePeersSummaryCountsThem(t *testing.T) {
	g := &Gateway{ledger: zone.NewLedger(), spills: zone.NewSpills(), waypoints: map[string][]waypoint{}}
	ams := capacity.Path{Region: "ams"}
	start := time.Unix(1000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	told := func(s float64) {
		g.creditPeers([]uplink.Peer{{Region: "ams", Age: 500 * time.Millisecond, RTT: 100 * time.Millisecond}}, at(s))
	}
	stands := func(s float64, want int64) {
		t.Helper()
		if got := g.ledger.Uncredited(ams, "m").Requests; got != want {
			t.Errorf("at %v s %d requests stand against the peer, want %d", s, got, want)
		}
	}
	told(0)
	g.ledger.Issue(ams, "m", 10, 20) // between 0 and 1 s
	told(1)
	stands(1, 1)
	g.ledger.Issue(ams, "m", 10, 20) // between 1 and 2 s
	told(2)
	stands(2, 2) // the summary is of 1.4 s at best, and what is on its way there takes a second
	told(3)
	stands(3, 1) // it counts what was sent before 1 s
	told(4)
	stands(4, 0)
	for s := range 100 {
		told(5 + float64(s))
	}
	if n := len(g.waypoints["ams"]); n > maxWaypoints {
		t.Errorf("%d waypoints are kept", n)
	}
	g.ledger.Issue(ams, "m", 10, 20)
	g.creditPeers(nil, at(200))
	if stands(200, 0); len(g.waypoints) != 0 {
		t.Errorf("a peer that is none any more has %d waypoints", len(g.waypoints))
	}
}
