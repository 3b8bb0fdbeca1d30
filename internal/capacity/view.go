package capacity

import (
	"slices"
	"time"
)

// CapacityView is what a Book said at one moment. It is immutable, and so are the Summaries that it points to.
type CapacityView struct {
	Children []ChildSummary // in ascending order of path
}

// ChildSummary is one child's newest statement.
type ChildSummary struct {
	Summary *Summary
	Age     time.Duration // since arrival
	State   Freshness
}

// SubtreeSummary is a region or zone: its children's statements taken together.
type SubtreeSummary struct {
	Path Path
	// Summary covers the children that are not lost; when all are lost, their last words.
	Summary Summary
	// State and Age are the freshest child's.
	State Freshness
	Age   time.Duration
	// Children counts those that are not lost; Lost counts the others.
	Children, Unreachable int
}

// FindChild finds a child by its path.
func (v *CapacityView) FindChild(p Path) (ChildSummary, bool) {
	i, ok := slices.BinarySearchFunc(v.Children, p, func(c ChildSummary, p Path) int { return c.Summary.Path.Compare(p) })
	if !ok {
		return ChildSummary{}, false
	}
	return v.Children[i], true
}

// TotalSummary is the sum over the children that are not lost. Boot, Seq and Endpoint are empty. Statements that gateways of
// one region make about the same zones count once; see Regions.
func (v *CapacityView) TotalSummary() Summary {
	var total Summary
	for _, g := range v.GroupByRegion() {
		if g.State != Unreachable {
			total = MergeSummaries(total, g.Summary)
		}
	}
	return withoutInstance(total)
}

// GroupByRegion groups the children by region, in ascending order.
//
// A child whose path names no zone is a gateway, which speaks for its whole region; two gateways of a region speak of
// the same workers. So of those the freshest is believed (among equally fresh ones, the one that sees the most
// workers), their Demand, RTTs, Networks, Outcomes and Uses add up, since each took other clients, and the region drains when all do.
func (v *CapacityView) GroupByRegion() []SubtreeSummary {
	return v.groupChildren(func(p Path) (Path, bool) { return Path{Region: p.Region}, true })
}

// GroupByZone groups the children of one region by zone, in ascending order.
func (v *CapacityView) GroupByZone(region string) []SubtreeSummary {
	return v.groupChildren(func(p Path) (Path, bool) {
		return Path{Region: p.Region, Zone: p.Zone}, p.Region == region && p.Zone != ""
	})
}

// groupChildren joins neighbours that of maps to one path; children are sorted, so neighbours are all there are.
func (v *CapacityView) groupChildren(of func(Path) (Path, bool)) []SubtreeSummary {
	var groups []SubtreeSummary
	for i := 0; i < len(v.Children); {
		p, ok := of(v.Children[i].Summary.Path)
		j := i + 1
		for ; j < len(v.Children); j++ {
			if q, same := of(v.Children[j].Summary.Path); q != p || same != ok {
				break
			}
		}
		if ok {
			groups = append(groups, mergeGroup(p, v.Children[i:j]))
		}
		i = j
	}
	return groups
}

func mergeGroup(p Path, children []ChildSummary) SubtreeSummary {
	g := SubtreeSummary{Path: p, State: Unreachable, Age: children[0].Age}
	for i, c := range children {
		if i == 0 || c.State < g.State || c.State == g.State && c.Age < g.Age {
			g.State, g.Age = c.State, c.Age
		}
		if c.State == Unreachable {
			g.Unreachable++
		} else {
			g.Children++
		}
	}
	var parts Summary
	var witnesses []ChildSummary
	for _, c := range children {
		switch {
		case c.State == Unreachable && g.State != Unreachable:
		case c.Summary.Path.Zone == "" && c.Summary.Path.Instance != "":
			witnesses = append(witnesses, c)
		default:
			parts = MergeSummaries(parts, *c.Summary)
		}
	}
	g.Summary = withoutInstance(MergeSummaries(parts, mergeGateways(witnesses)))
	g.Summary.Path = p
	return g
}

// mergeGateways makes one statement of several about the same subtree.
func mergeGateways(witnesses []ChildSummary) Summary {
	if len(witnesses) == 0 {
		return Summary{}
	}
	best := witnesses[0]
	var demand Summary
	draining := true
	for _, w := range witnesses {
		if w.State < best.State || w.State == best.State && countWorkers(w.Summary) > countWorkers(best.Summary) {
			best = w
		}
		draining = draining && w.Summary.Draining
		demand.Demand = mergeSorted(demand.Demand, w.Summary.Demand, MaxDemand, compareDemand, mergeDemand)
		demand.Networks = mergeSorted(demand.Networks, w.Summary.Networks, MaxNetworks, compareNetwork, mergeNetwork)
		demand.RTTs = mergeSorted(demand.RTTs, w.Summary.RTTs, MaxRTTs, compareRTT, mergeRTT)
		demand.Outcomes = mergeSorted(demand.Outcomes, w.Summary.Outcomes, MaxOutcomes, compareOutcome, mergeOutcome)
		demand.TenantUsages = mergeSorted(demand.TenantUsages, w.Summary.TenantUsages, MaxTenantUsages, compareUsage, mergeUsage)
	}
	s := *best.Summary
	s.Draining, s.Demand, s.RTTs, s.Outcomes = draining, demand.Demand, demand.RTTs, demand.Outcomes
	s.Networks, s.TenantUsages, s.HeldLeases = demand.Networks, demand.TenantUsages, HeldLeases{}
	return s
}

func countWorkers(s *Summary) (n int64) {
	for i := range s.Models {
		n = addAmounts(n, s.Models[i].Total)
	}
	return n
}

// withoutInstance takes away what only a single instance has.
func withoutInstance(s Summary) Summary {
	s.Boot, s.Seq, s.Endpoint, s.unknown = 0, 0, "", ""
	return s
}
