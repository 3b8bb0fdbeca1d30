package lab

import "slices"

// baselinesName stands for all of the catalogue's baselines in a list of policies.
const baselinesName = "baselines"

// baselines are the policies that the catalogue compares with: round robin, two at random, least requests, least queue, weighted,
// session hash with bounded loads, prefix hash with bounded loads, the rules of other systems among a zone's workers, and those of
// other systems that stand in all our tiers' place.
var baselines = []string{
	"round_robin", "power_of_two", "least_connections", "least_queue", "weighted_least_connections", "consistent_hash", "prefix_affinity",
	"cache_aware", "overlap_cost", "score_blend", "sticky_until_saturated", "lmetric", "prequal",
	"skywalker", "gorgo_priced", "prequal_pool",
}

// spelled puts the baselines in where their common name stands, each policy once.
func spelled(names []string) []string {
	at := slices.Index(names, baselinesName)
	if at < 0 {
		return names
	}
	out := slices.Clone(names[:at])
	for _, b := range baselines {
		if !slices.Contains(names, b) {
			out = append(out, b)
		}
	}
	return append(out, names[at+1:]...)
}

// everyPlace stands for each of the experiment's places in a group's region.
const everyPlace = "each"

// spread puts a group into every place where it says so, place by place.
func (e *Experiment) spread(fleet []Group) []Group {
	if !slices.ContainsFunc(fleet, func(g Group) bool { return g.Region == everyPlace }) {
		return fleet
	}
	var out []Group
	for _, g := range fleet {
		if g.Region != everyPlace {
			out = append(out, g)
		}
	}
	for i := range e.Places {
		for _, g := range fleet {
			if g.Region == everyPlace {
				g.Region = e.Places[i].Name
				out = append(out, g)
			}
		}
	}
	return out
}

// shrink keeps the first of the places, as the small form wants it.
func (e *Experiment) shrink() {
	n := e.Small.Places
	if n == 0 || n >= len(e.Places) {
		return
	}
	e.Places = e.Places[:n]
	kept := func(fleet []Group) []Group {
		return slices.DeleteFunc(slices.Clone(fleet), func(g Group) bool {
			return !slices.ContainsFunc(e.Places, func(p Place) bool { return p.Name == g.Region })
		})
	}
	e.Fleet = kept(e.Fleet)
	for i := range e.Cases {
		e.Cases[i].Fleet = kept(e.Cases[i].Fleet)
	}
}
