package snapshot

import (
	"math"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
)

const (
	// An RTT that changes by less than minRTTChangeShare or minRTTChange keeps its old value, because each change
	// rebuilds tables and answers.
	minRTTChangeShare = 0.05
	minRTTChange      = 0.001 // seconds
)

// RTTEstimates are the RTTs between cells and regions: a policy's priors, blended with the gateways' measurements. It
// is immutable.
type RTTEstimates struct {
	Policy   *SteeringPolicy
	Geo      *steer.Geography
	ByCell   map[int32][]geo.RTTEstimate // by region; cells without measurements are absent
	ByRegion map[int][]geo.RTTEstimate   // by region and region; regions without measurements are absent
	MadeAt   time.Time
	MaxAge   time.Duration // older measurements are ignored; negative: all are
	// measuringRegions is the number of regions that have reported RTTs.
	MeasuringRegions int
}

// EstimateRTTs blends each region's reported RTTs into a policy's priors.
func EstimateRTTs(f *SteeringPolicy, children *capacity.CapacityView, limit time.Duration, now time.Time) *RTTEstimates {
	n := blendRTTs(f, ReportedRTTs(children), limit, now)
	n.MeasuringRegions = CountMeasuringRegions(children)
	return n
}

// blendRTTs blends measured RTTs into a policy's priors. RTTs older than limit are ignored; if limit is negative, all
// are.
func blendRTTs(f *SteeringPolicy, all []RegionRTTs, limit time.Duration, now time.Time) *RTTEstimates {
	n := &RTTEstimates{Policy: f, Geo: f.PriorGeo, MadeAt: now, MaxAge: limit}
	n.ByRegion = n.blendRegionPaths(all)
	measured := n.groupByCell(all)
	if len(measured) == 0 {
		return n
	}
	places := make([]geo.Location, len(f.Spec.Regions))
	for r := range places {
		places[r] = regionLocation(&f.Spec.Regions[r])
	}
	n.ByCell = make(map[int32][]geo.RTTEstimate, len(measured))
	rows := make(map[int32][]float32, len(measured))
	for cell, m := range measured {
		at, ok := f.cellLocation(cell)
		if !ok {
			continue
		}
		n.ByCell[cell] = geo.BlendRTTs(at, places, m, limit)
		for _, e := range n.ByCell[cell] {
			rows[cell] = append(rows[cell], float32(e.RTT.Seconds()))
		}
	}
	n.Geo = f.PriorGeo.WithRows(rows)
	return n
}

// groupByCell lists the measurements by cell and region.
func (n *RTTEstimates) groupByCell(all []RegionRTTs) map[int32][]geo.RTTMeasurement {
	out := map[int32][]geo.RTTMeasurement{}
	if n.MaxAge < 0 {
		return out
	}
	for _, g := range all {
		r := n.Policy.RegionIndex(g.Region)
		if r < 0 {
			continue
		}
		for i := range g.RTTs {
			x := &g.RTTs[i]
			cell := geo.ParseCellName(x.Cell)
			if cell == geo.NoCell || x.Samples <= 0 {
				continue
			}
			if out[cell] == nil {
				out[cell] = make([]geo.RTTMeasurement, len(n.Policy.Spec.Regions))
			}
			out[cell][r] = geo.RTTMeasurement{Median: microsToDuration(x.MedianMicros()), Samples: float64(x.Samples), Age: SecondsToAge(x.AgeSec) + g.Age}
		}
	}
	return out
}

// microsToDuration accepts amounts up to 2^53, more than a Duration holds.
func microsToDuration(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Microsecond))) * time.Microsecond
}

// SecondsToAge returns an age of up to 1000 h; greater amounts count as that.
func SecondsToAge(seconds int64) time.Duration {
	const most = 1000 * time.Hour // older than any valid measurement, with room for a sum
	return min(time.Duration(min(seconds, int64(most/time.Second)))*time.Second, most)
}

// DiffersFrom reports whether any RTT differs from the old one.
func (n *RTTEstimates) DiffersFrom(old *RTTEstimates) bool {
	if n.Policy != old.Policy {
		return true
	}
	for _, cells := range []map[int32][]geo.RTTEstimate{n.ByCell, old.ByCell} {
		for cell := range cells {
			if rowsDiffer(n.Geo.RTTRow(cell), old.Geo.RTTRow(cell)) {
				return true
			}
		}
	}
	return false
}

func rowsDiffer(a, b []float32) bool {
	return !slices.EqualFunc(a, b, func(x, y float32) bool {
		return math.Abs(float64(x-y)) <= max(minRTTChange, minRTTChangeShare*float64(y))
	})
}

// CountMeasuringRegions counts the regions that have reported RTTs.
func CountMeasuringRegions(children *capacity.CapacityView) (n int) {
	for _, g := range children.GroupByRegion() {
		if len(g.Summary.RTTs) > 0 {
			n++
		}
	}
	return n
}

// SetRTTs makes the snapshot use n.
func (v *SteeringSnapshot) SetRTTs(n *RTTEstimates) { v.RTTs, v.Geo = n, n.Geo }

// EstimateRTT returns the components of a region's RTT from a cell, from the prior if nothing was measured. It
// returns false for an unknown cell.
func (v *SteeringSnapshot) EstimateRTT(cell int32, region int) (geo.RTTEstimate, bool) {
	row := v.Geo.RTTRow(cell)
	if row == nil {
		return geo.RTTEstimate{}, false
	}
	used := time.Duration(float64(row[region]) * float64(time.Second))
	if v.RTTs != nil && v.RTTs.ByCell[cell] != nil {
		e := v.RTTs.ByCell[cell][region]
		e.RTT = used
		e.Measured.Age += v.MadeAt.Sub(v.RTTs.MadeAt)
		return e, true
	}
	return geo.RTTEstimate{RTT: used, Prior: used, Source: geo.RTTSourcePrior}, true
}

// RegionRTTs are the RTTs that one region's gateways measured.
type RegionRTTs struct {
	Region string
	RTTs   []capacity.CellRTT
	Age    time.Duration // of the report, added to the age of each RTT
}

// ReportedRTTs returns the RTTs in reports.
func ReportedRTTs(children *capacity.CapacityView) (out []RegionRTTs) {
	for _, g := range children.GroupByRegion() {
		out = append(out, RegionRTTs{g.Path.Region, g.Summary.RTTs, g.Age})
	}
	return out
}

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
