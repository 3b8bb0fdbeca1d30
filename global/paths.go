package global

import (
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// paths blends what gateways measured of each other into the distances between regions. A way back is as long as the way
// there: reference 5.2 has half a millisecond between them.
func (n *near) paths(children *capacity.View) map[int][]geo.Estimate {
	if n.limit < 0 {
		return nil
	}
	count := len(n.frame.spec.Regions)
	there := map[int][]geo.Measured{}
	note := func(from, to int, m geo.Measured, firsthand bool) {
		if there[from] == nil {
			there[from] = make([]geo.Measured, count)
		}
		if old := &there[from][to]; firsthand || old.Samples == 0 {
			*old = m
		}
	}
	for _, firsthand := range []bool{false, true} {
		for _, g := range children.Regions() {
			from := n.frame.region(g.Path.Region)
			for i := range g.Summary.RTTs {
				x := &g.Summary.RTTs[i]
				name, path := x.Region()
				to := n.frame.region(name)
				if !path || from < 0 || to < 0 || from == to || x.Samples <= 0 {
					continue
				}
				m := geo.Measured{Median: micros(x.Micros()), Samples: float64(x.Samples), Age: age(x.AgeSec) + g.Age}
				if firsthand {
					note(from, to, m, true)
				} else {
					note(to, from, m, false)
				}
			}
		}
	}
	places := make([]geo.Place, count)
	for r := range places {
		places[r] = placeOf(&n.frame.spec.Regions[r])
	}
	out := make(map[int][]geo.Estimate, len(there))
	for from, m := range there {
		out[from] = geo.BlendPaths(places[from], places, m, n.limit)
	}
	return out
}

// path is the round trip between two regions' gateways and how many samples are in it, 0 where it is the prior.
func (v *View) path(from, to int) (rtt time.Duration, samples int64) {
	if v.near != nil && v.near.peers[from] != nil {
		if e := &v.near.peers[from][to]; e.Source == geo.RTTMeasured {
			return e.RTT, max(1, int64(e.Measured.Samples))
		}
	}
	return geo.RTT(placeOf(&v.spec.Regions[from]), placeOf(&v.spec.Regions[to])), 0
}
