package snapshot

import (
	"time"

	"github.com/spillway-lb/spillway/geo"
)

// blendRegionPaths blends the RTTs that gateways measured among each other into the distances between regions. Both
// directions use one value: in reference 5.2 they differ by half a millisecond.
func (n *RTTEstimates) blendRegionPaths(all []RegionRTTs) map[int][]geo.RTTEstimate {
	if n.MaxAge < 0 {
		return nil
	}
	count := len(n.Policy.Spec.Regions)
	there := map[int][]geo.RTTMeasurement{}
	note := func(from, to int, m geo.RTTMeasurement, firsthand bool) {
		if there[from] == nil {
			there[from] = make([]geo.RTTMeasurement, count)
		}
		if old := &there[from][to]; firsthand || old.Samples == 0 {
			*old = m
		}
	}
	for _, firsthand := range []bool{false, true} {
		for _, g := range all {
			from := n.Policy.RegionIndex(g.Region)
			for i := range g.RTTs {
				x := &g.RTTs[i]
				name, path := x.PeerRegion()
				to := n.Policy.RegionIndex(name)
				if !path || from < 0 || to < 0 || from == to || x.Samples <= 0 {
					continue
				}
				m := geo.RTTMeasurement{Median: microsToDuration(x.MedianMicros()), Samples: float64(x.Samples), Age: SecondsToAge(x.AgeSec) + g.Age}
				if firsthand {
					note(from, to, m, true)
				} else {
					note(to, from, m, false)
				}
			}
		}
	}
	places := make([]geo.Location, count)
	for r := range places {
		places[r] = regionLocation(&n.Policy.Spec.Regions[r])
	}
	out := make(map[int][]geo.RTTEstimate, len(there))
	for from, m := range there {
		out[from] = geo.BlendGatewayRTTs(places[from], places, m, n.MaxAge)
	}
	return out
}

// RegionRTT returns the RTT between two regions' gateways and the number of its samples; 0 samples mean the prior.
func (v *SteeringSnapshot) RegionRTT(from, to int) (rtt time.Duration, samples int64) {
	if v.RTTs != nil && v.RTTs.ByRegion[from] != nil {
		if e := &v.RTTs.ByRegion[from][to]; e.Source == geo.RTTSourceMeasured {
			return e.RTT, max(1, int64(e.Measured.Samples))
		}
	}
	return geo.PriorRTT(regionLocation(&v.Spec.Regions[from]), regionLocation(&v.Spec.Regions[to])), 0
}
