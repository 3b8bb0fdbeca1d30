package global

import (
	"cmp"
	"math"
	"slices"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/admin"
)

// reading is a plan as clients are answered by it, with the spec and the round trips of a View. What was drained or lost when
// the plan was made counts as drained here: the plan's rows were made for that.
type reading struct {
	*frame
	plan    *steer.Plan
	table   *steer.Table
	without steer.Set
}

func (v *View) reading(p *steer.Plan) *reading {
	r := &reading{frame: v.frame, plan: p, table: steer.Compile(v.spec, v.geo, p)}
	for _, name := range p.Without {
		if i := v.region(name); i >= 0 {
			r.without.Add(i)
		}
	}
	return r
}

// shares is each region's part of a cell's clients, by a row of n client networks that lie evenly in the space of hashes.
func (r *reading) shares(service int, cell int32, n uint64) []float64 {
	out := make([]float64, len(r.spec.Regions))
	q := steer.Query{Service: service, Cell: cell, Drained: r.without}
	for i := range n {
		q.Key = i * golden
		c := r.table.Pick(&q)
		if c.Region < 0 {
			continue
		}
		if !c.Split {
			out[c.Region] = 1
			return out
		}
		out[c.Region] += 1 / float64(n)
	}
	return out
}

// golden spreads multiples evenly over 64 bits.
const golden = 0x9e3779b97f4a7c15

// apart is the part of the clients that two rows of shares answer otherwise, 0..1.
func apart(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += math.Abs(a[i] - b[i])
	}
	return sum / 2
}

// least is the smallest part of a cell's clients that counts as moved: less is the grain of the samples.
const least = 1e-9

// moved counts the cells, each service's for itself, that two readings of one frame answer otherwise.
func (r *reading) moved(to *reading, n uint64) (cells int, share float64) {
	all := r.atlas.Cells()
	for s := range r.spec.Services {
		for _, c := range all {
			if d := apart(r.shares(s, c.ID, n), to.shares(s, c.ID, n)); d > least {
				cells++
				share += d
			}
		}
	}
	return cells, share / float64(max(1, len(all)*len(r.spec.Services)))
}

// service is one service as the plan has it.
func (r *reading) describe(service int, n uint64) admin.PlanService {
	svc, cells := &r.spec.Services[service], r.atlas.Cells()
	out := admin.PlanService{Name: svc.Name, Mode: cmp.Or(svc.Mode, "latency"), Regions: []admin.PlanRegion{}, Rows: []admin.PlanRow{}, Cells: len(cells)}
	ps := r.plan.Service(svc.Name)
	served := make([]float64, len(r.spec.Regions))
	for _, c := range cells {
		for i, share := range r.shares(service, c.ID, n) {
			served[i] += share
		}
	}
	for i := range r.spec.Regions {
		out.Regions = append(out.Regions, r.regionOf(ps, i, served[i]))
	}
	if ps == nil {
		return out
	}
	for i := range ps.Rows {
		out.Rows = append(out.Rows, admin.PlanRow{Cell: ps.Rows[i].Cell, Shares: r.named(ps.Rows[i].Shares), Pinned: r.pins(ps.Rows[i].Pins)})
	}
	return out
}

// regionOf is what the plan says of one region of the spec; ps may be nil.
func (r *reading) regionOf(ps *steer.Service, region int, served float64) admin.PlanRegion {
	out := admin.PlanRegion{Name: r.spec.Regions[region].Name, Cells: served}
	at := slices.Index(r.plan.Regions, out.Name)
	if ps == nil || at < 0 {
		return out
	}
	out.Wait, out.Price = ps.Wait[at], ps.Price[at]
	for _, s := range ps.Spread {
		if int(s.Region) == at {
			out.Spread += float64(s.Weight) / steer.WeightSum
		}
	}
	if at < len(r.plan.Ramp) {
		out.Ramp = float64(r.plan.Ramp[at]) / steer.WeightSum
	}
	return out
}

// named puts names to a plan's shares, the largest first.
func (r *reading) named(shares []steer.Share) []admin.PlanShare {
	out := make([]admin.PlanShare, 0, len(shares))
	for _, s := range shares {
		out = append(out, admin.PlanShare{Region: r.plan.Regions[s.Region], Share: float64(s.Weight) / steer.WeightSum})
	}
	largestFirst(out)
	return out
}

// listed puts names to a row by region.
func (r *reading) listed(shares []float64) []admin.PlanShare {
	out := []admin.PlanShare{}
	for i, s := range shares {
		if s > 0 {
			out = append(out, admin.PlanShare{Region: r.spec.Regions[i].Name, Share: s})
		}
	}
	largestFirst(out)
	return out
}

func largestFirst(out []admin.PlanShare) {
	slices.SortStableFunc(out, func(a, b admin.PlanShare) int { return cmp.Compare(b.Share, a.Share) })
}

// compare says what differs for one service.
func (r *reading) compare(to *reading, service int, n uint64) admin.PlanServiceDiff {
	out := admin.PlanServiceDiff{Name: r.spec.Services[service].Name, Regions: []admin.PlanRegionDiff{}, Cells: []admin.PlanCellDiff{}}
	a, b := r.describe(service, n), to.describe(service, n)
	for i := range a.Regions {
		if a.Regions[i] != b.Regions[i] {
			out.Regions = append(out.Regions, admin.PlanRegionDiff{From: a.Regions[i], To: b.Regions[i]})
		}
	}
	for _, c := range r.atlas.Cells() {
		x, y := r.shares(service, c.ID, n), to.shares(service, c.ID, n)
		if d := apart(x, y); d > least {
			out.Cells = append(out.Cells, admin.PlanCellDiff{Cell: geo.CellName(c.ID), From: r.listed(x), To: to.listed(y), Moved: d})
		}
	}
	out.Moved = len(out.Cells)
	slices.SortStableFunc(out.Cells, func(a, b admin.PlanCellDiff) int { return cmp.Compare(b.Moved, a.Moved) })
	out.Cells = out.Cells[:min(len(out.Cells), maxMoves)]
	return out
}
