package zone_test

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/regional/zone"
)

// TestExplanationTellsDrainFromAbsence: a drained zone or region is called so, though its workers take nothing, and a
// peer without a gateway that is reachable has not failed the request.
func TestExplanationTellsDrainFromAbsence(t *testing.T) {
	ready := model("m", 0)
	none := with(ready, func(m *capacity.Model) { m.Ready = 0 })
	away := func(p zone.Peer) zone.Peer { p.Gateways = nil; return p }
	drained := func(p zone.Peer) zone.Peer { p.Drained = true; return p }
	ams := func(ms ...capacity.Model) zone.Peer { return peer("ams", 10*time.Millisecond, ms...) }
	for _, c := range []struct {
		name, candidate, want string
		view                  zone.View
	}{
		{"a drained zone that reports no model", "fra/b/l1", zone.DropDraining, zone.View{Locals: []zone.Local{with(local("b"), func(l *zone.Local) { l.Drained = true })}}},
		{"a drained zone that has no ready worker", "fra/b/l1", zone.DropDraining, zone.View{Locals: []zone.Local{with(local("b", none), func(l *zone.Local) { l.Drained = true })}}},
		{"a zone without the model", "fra/b/l1", zone.DropModel, zone.View{Locals: []zone.Local{local("b")}}},
		{"a drained region that reports no model", "ams", zone.DropDraining, zone.View{Peers: []zone.Peer{drained(ams())}}},
		{"a drained region without a reachable gateway", "ams", zone.DropDraining, zone.View{Peers: []zone.Peer{drained(away(ams(ready)))}}},
		{"a region without a reachable gateway", "ams", zone.DropUnreachable, zone.View{Peers: []zone.Peer{away(ams(ready))}}},
		{"a region without the model", "ams", zone.DropModel, zone.View{Peers: []zone.Peer{ams()}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var rec explain.Record
			zone.Choose(query(), &c.view, time.Now(), rng(), &rec)
			for _, x := range rec.Candidates {
				if x.Name == c.candidate {
					if x.Dropped != c.want {
						t.Errorf("dropped for %q, want %q", x.Dropped, c.want)
					}
					return
				}
			}
			t.Errorf("%s is not among the candidates %+v", c.candidate, rec.Candidates)
		})
	}
}
