package capacity

import (
	"slices"
	"time"
)

// CapacityView is the content of a SummaryTable at one moment. It is immutable, and so are its Summaries.
type CapacityView struct {
	Children []ChildSummary // in ascending order of path
}

// ChildSummary is the newest summary of one child.
type ChildSummary struct {
	Summary *Summary
	Age     time.Duration // since arrival
	State   Freshness
}

// SubtreeSummary is a region or zone: the merged summaries of its children.
type SubtreeSummary struct {
	Path Path
	// Summary covers the children that are not unreachable; if all are, their last summaries.
	Summary Summary
	// State and Age are those of the freshest child.
	State Freshness
	Age   time.Duration
	// Children counts the reachable children; Unreachable counts the others.
	Children, Unreachable int
}

// FindChild returns the child with a path.
func (v *CapacityView) FindChild(p Path) (ChildSummary, bool) {
	i, ok := slices.BinarySearchFunc(v.Children, p, func(c ChildSummary, p Path) int { return c.Summary.Path.Compare(p) })
	if !ok {
		return ChildSummary{}, false
	}
	return v.Children[i], true
}

// TotalSummary returns the sum over the reachable children. Boot, Seq and Endpoint are empty. Summaries of several
// gateways of one region about the same zones count once; see GroupByRegion.
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
// A child whose path has no zone is a gateway, which reports its whole region; two gateways of a region report the same
// workers. Of these the freshest summary counts (of equally fresh ones, that with the most workers). Their Demand,
// RTTs, Networks, Outcomes and TenantUsages are summed, since each gateway has different clients, and the region is
// draining when all gateways are.
func (v *CapacityView) GroupByRegion() []SubtreeSummary {
	return v.groupChildren(func(p Path) (Path, bool) { return Path{Region: p.Region}, true })
}

// GroupByZone groups the children of one region by zone, in ascending order.
func (v *CapacityView) GroupByZone(region string) []SubtreeSummary {
	return v.groupChildren(func(p Path) (Path, bool) {
		return Path{Region: p.Region, Zone: p.Zone}, p.Region == region && p.Zone != ""
	})
}

// groupChildren merges neighbours for which of returns the same path. children are sorted, so equal paths are
// neighbours.
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
	var reporters []ChildSummary
	for _, c := range children {
		switch {
		case c.State == Unreachable && g.State != Unreachable:
		case c.Summary.Path.Zone == "" && c.Summary.Path.Instance != "":
			reporters = append(reporters, c)
		default:
			parts = MergeSummaries(parts, *c.Summary)
		}
	}
	g.Summary = withoutInstance(MergeSummaries(parts, mergeGateways(reporters)))
	g.Summary.Path = p
	return g
}

// mergeGateways merges several summaries of the same subtree into one.
func mergeGateways(reporters []ChildSummary) Summary {
	if len(reporters) == 0 {
		return Summary{}
	}
	best := reporters[0]
	var demand Summary
	draining := true
	for _, w := range reporters {
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

// withoutInstance clears the fields of a single instance.
func withoutInstance(s Summary) Summary {
	s.Boot, s.Seq, s.Endpoint, s.unknown = 0, 0, "", ""
	return s
}
