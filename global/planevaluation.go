package global

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// planEvaluation evaluates how a plan answers clients, with the spec and the RTTs of a snapshot. Regions that were
// drained or lost when the plan was made count as drained here, because the plan's rows were made for that.
type planEvaluation struct {
	*snapshot.SteeringPolicy
	plan    *steer.Plan
	table   *steer.Table
	without steer.RegionSet
}

func evaluatePlan(v *nodeSnapshot, p *steer.Plan) *planEvaluation {
	r := &planEvaluation{SteeringPolicy: v.SteeringPolicy, plan: p, table: steer.CompileTable(v.Spec, v.Geo, p)}
	for _, name := range p.Without {
		if i := v.RegionIndex(name); i >= 0 {
			r.without.Add(i)
		}
	}
	return r
}

// cellShares returns each region's share of a cell's clients, from n sample networks whose hashes are evenly spaced.
func (r *planEvaluation) cellShares(service int, cell int32, n uint64) []float64 {
	out := make([]float64, len(r.Spec.Regions))
	q := steer.PickQuery{Service: service, Cell: cell, Drained: r.without}
	for i := range n {
		q.Key = i * goldenRatio64
		c := r.table.PickRegion(&q)
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

// goldenRatio64 spreads multiples evenly over 64 bits.
const goldenRatio64 = 0x9e3779b97f4a7c15

// shareDistance returns the share of the clients (0..1) for which two rows of shares differ.
func shareDistance(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += math.Abs(a[i] - b[i])
	}
	return sum / 2
}

// minMovedShare is the smallest share of a cell's clients that counts as moved; a smaller one is rounding.
const minMovedShare = 1e-9

// countMovedCells counts the cells, for each service separately, that two evaluations of one policy answer
// differently.
func (r *planEvaluation) countMovedCells(to *planEvaluation, n uint64) (cells int, share float64) {
	all := r.Cells
	for s := range r.Spec.Services {
		for _, c := range all {
			if d := shareDistance(r.cellShares(s, c.ID, n), to.cellShares(s, c.ID, n)); d > minMovedShare {
				cells++
				share += d
			}
		}
	}
	return cells, share / float64(max(1, len(all)*len(r.Spec.Services)))
}

// describeService describes one service of the plan.
func (r *planEvaluation) describeService(service int, n uint64) admin.PlanService {
	svc, cells := &r.Spec.Services[service], r.Cells
	out := admin.PlanService{Name: svc.Name, Mode: cmp.Or(svc.Mode, "latency"), Regions: []admin.PlanRegion{}, Rows: []admin.PlanRow{}, Cells: len(cells)}
	ps := r.plan.FindService(svc.Name)
	served := make([]float64, len(r.Spec.Regions))
	for _, c := range cells {
		for i, share := range r.cellShares(service, c.ID, n) {
			served[i] += share
		}
	}
	for i := range r.Spec.Regions {
		out.Regions = append(out.Regions, r.describeRegion(ps, i, served[i]))
	}
	if ps == nil {
		return out
	}
	for i := range ps.Rows {
		out.Rows = append(out.Rows, admin.PlanRow{Cell: ps.Rows[i].Cell, Shares: r.namePlanShares(ps.Rows[i].Shares), Pinned: r.listPins(ps.Rows[i].Pins)})
	}
	return out
}

// describeRegion describes one region of the plan; ps may be nil.
func (r *planEvaluation) describeRegion(ps *steer.ServicePlan, region int, served float64) admin.PlanRegion {
	out := admin.PlanRegion{Name: r.Spec.Regions[region].Name, Cells: served}
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

// namePlanShares adds names to a plan's shares, the largest first.
func (r *planEvaluation) namePlanShares(shares []steer.RegionShare) []admin.PlanShare {
	out := make([]admin.PlanShare, 0, len(shares))
	for _, s := range shares {
		out = append(out, admin.PlanShare{Region: r.plan.Regions[s.Region], Share: float64(s.Weight) / steer.WeightSum})
	}
	sortLargestFirst(out)
	return out
}

// nameRegionShares adds names to a row of shares by region.
func (r *planEvaluation) nameRegionShares(shares []float64) []admin.PlanShare {
	out := []admin.PlanShare{}
	for i, s := range shares {
		if s > 0 {
			out = append(out, admin.PlanShare{Region: r.Spec.Regions[i].Name, Share: s})
		}
	}
	sortLargestFirst(out)
	return out
}

func sortLargestFirst(out []admin.PlanShare) {
	slices.SortStableFunc(out, func(a, b admin.PlanShare) int { return cmp.Compare(b.Share, a.Share) })
}

// compareService returns the differences for one service.
func (r *planEvaluation) compareService(to *planEvaluation, service int, n uint64) admin.PlanServiceDiff {
	out := admin.PlanServiceDiff{Name: r.Spec.Services[service].Name, Regions: []admin.PlanRegionDiff{}, Cells: []admin.PlanCellDiff{}}
	a, b := r.describeService(service, n), to.describeService(service, n)
	for i := range a.Regions {
		if a.Regions[i] != b.Regions[i] {
			out.Regions = append(out.Regions, admin.PlanRegionDiff{From: a.Regions[i], To: b.Regions[i]})
		}
	}
	for _, c := range r.Cells {
		x, y := r.cellShares(service, c.ID, n), to.cellShares(service, c.ID, n)
		if d := shareDistance(x, y); d > minMovedShare {
			out.Cells = append(out.Cells, admin.PlanCellDiff{Cell: geo.CellName(c.ID), From: r.nameRegionShares(x), To: to.nameRegionShares(y), Moved: d})
		}
	}
	out.Moved = len(out.Cells)
	slices.SortStableFunc(out.Cells, func(a, b admin.PlanCellDiff) int { return cmp.Compare(b.Moved, a.Moved) })
	out.Cells = out.Cells[:min(len(out.Cells), maxListedMoves)]
	return out
}

// listPins returns a row's pins with network and region names.
func (r *planEvaluation) listPins(pins []steer.Pin) (out []admin.PlanPin) {
	for _, p := range pins {
		if network, ok := capacity.NetworkPrefix(p.Network); ok {
			out = append(out, admin.PlanPin{Network: network.String(), Region: r.plan.Regions[p.Region]})
		}
	}
	return out
}

// describePin describes why a network is pinned; empty if it is not.
func describePin(v *nodeSnapshot, c steer.Choice, q *steer.PickQuery, network uint64) string {
	if c.Reason != steer.ReasonPinned {
		return ""
	}
	prefix, _ := capacity.NetworkPrefix(network)
	rate := 0.0
	for _, h := range v.CollectHeavyHitters() {
		if h.Service == v.Spec.Services[q.Service].Name && h.Network == network {
			rate += h.Rate
		}
	}
	return fmt.Sprintf("pinned: heavy network %s, demands %.0f tokens/s now", prefix, rate)
}
