package capacity

import (
	"slices"
	"time"
)

// View is what a Book said at one moment. It is immutable, and so are the Summaries that it points to.
type View struct {
	Children []Child // in ascending order of path
}

// Child is one child's newest statement.
type Child struct {
	Summary *Summary
	Age     time.Duration // since arrival
	State   Freshness
}

// Group is a region or zone: its children's statements taken together.
type Group struct {
	Path Path
	// Summary covers the children that are not lost; when all are lost, their last words.
	Summary Summary
	// State and Age are the freshest child's.
	State Freshness
	Age   time.Duration
	// Children counts those that are not lost; Lost counts the others.
	Children, Lost int
}

// Child finds a child by its path.
func (v *View) Child(p Path) (Child, bool) {
	i, ok := slices.BinarySearchFunc(v.Children, p, func(c Child, p Path) int { return c.Summary.Path.Compare(p) })
	if !ok {
		return Child{}, false
	}
	return v.Children[i], true
}

// Total is the sum over the children that are not lost. Boot, Seq and Endpoint are empty. Statements that gateways of
// one region make about the same zones count once; see Regions.
func (v *View) Total() Summary {
	var total Summary
	for _, g := range v.Regions() {
		if g.State != Lost {
			total = Merge(total, g.Summary)
		}
	}
	return anonymous(total)
}

// Regions groups the children by region, in ascending order.
//
// A child whose path names no zone is a gateway, which speaks for its whole region; two gateways of a region speak of
// the same workers. So of those the freshest is believed (among equally fresh ones, the one that sees the most
// workers), their Demand, RTTs, Networks, Outcomes and Uses add up, since each took other clients, and the region drains when all do.
func (v *View) Regions() []Group {
	return v.group(func(p Path) (Path, bool) { return Path{Region: p.Region}, true })
}

// Zones groups the children of one region by zone, in ascending order.
func (v *View) Zones(region string) []Group {
	return v.group(func(p Path) (Path, bool) {
		return Path{Region: p.Region, Zone: p.Zone}, p.Region == region && p.Zone != ""
	})
}

// group joins neighbours that of maps to one path; children are sorted, so neighbours are all there are.
func (v *View) group(of func(Path) (Path, bool)) []Group {
	var groups []Group
	for i := 0; i < len(v.Children); {
		p, ok := of(v.Children[i].Summary.Path)
		j := i + 1
		for ; j < len(v.Children); j++ {
			if q, same := of(v.Children[j].Summary.Path); q != p || same != ok {
				break
			}
		}
		if ok {
			groups = append(groups, groupOf(p, v.Children[i:j]))
		}
		i = j
	}
	return groups
}

func groupOf(p Path, children []Child) Group {
	g := Group{Path: p, State: Lost, Age: children[0].Age}
	for i, c := range children {
		if i == 0 || c.State < g.State || c.State == g.State && c.Age < g.Age {
			g.State, g.Age = c.State, c.Age
		}
		if c.State == Lost {
			g.Lost++
		} else {
			g.Children++
		}
	}
	var parts Summary
	var witnesses []Child
	for _, c := range children {
		switch {
		case c.State == Lost && g.State != Lost:
		case c.Summary.Path.Zone == "" && c.Summary.Path.Instance != "":
			witnesses = append(witnesses, c)
		default:
			parts = Merge(parts, *c.Summary)
		}
	}
	g.Summary = anonymous(Merge(parts, agree(witnesses)))
	g.Summary.Path = p
	return g
}

// agree makes one statement of several about the same subtree.
func agree(witnesses []Child) Summary {
	if len(witnesses) == 0 {
		return Summary{}
	}
	best := witnesses[0]
	var demand Summary
	draining := true
	for _, w := range witnesses {
		if w.State < best.State || w.State == best.State && workers(w.Summary) > workers(best.Summary) {
			best = w
		}
		draining = draining && w.Summary.Draining
		demand.Demand = mergeSorted(demand.Demand, w.Summary.Demand, MaxDemand, compareDemand, mergeDemand)
		demand.Networks = mergeSorted(demand.Networks, w.Summary.Networks, MaxNetworks, compareNetwork, mergeNetwork)
		demand.RTTs = mergeSorted(demand.RTTs, w.Summary.RTTs, MaxRTTs, compareRTT, mergeRTT)
		demand.Outcomes = mergeSorted(demand.Outcomes, w.Summary.Outcomes, MaxOutcomes, compareOutcome, mergeOutcome)
		demand.Uses = mergeSorted(demand.Uses, w.Summary.Uses, MaxUses, compareUse, mergeUse)
	}
	s := *best.Summary
	s.Draining, s.Demand, s.RTTs, s.Outcomes = draining, demand.Demand, demand.RTTs, demand.Outcomes
	s.Networks, s.Uses, s.Holding = demand.Networks, demand.Uses, Holding{}
	return s
}

func workers(s *Summary) (n int64) {
	for i := range s.Models {
		n = add(n, s.Models[i].Total)
	}
	return n
}

// anonymous takes away what only a single instance has.
func anonymous(s Summary) Summary {
	s.Boot, s.Seq, s.Endpoint, s.unknown = 0, 0, "", ""
	return s
}
