package experiment

import "slices"

// baselinesName stands for all baselines of the catalogue in a list of policies.
const baselinesName = "baselines"

// baselines are the policies of the catalogue's comparisons: round robin, two at random, least requests, least queue,
// weighted, session hash with bounded loads, prefix hash with bounded loads, the rules of other systems among a
// zone's workers, and those of other systems that replace all of Spillway's tiers.
var baselines = []string{
	"round_robin", "power_of_two", "least_connections", "least_queue", "weighted_least_connections", "consistent_hash", "prefix_affinity",
	"cache_aware", "overlap_cost", "score_blend", "sticky_until_saturated", "lmetric", "prequal",
	"skywalker", "gorgo_priced", "prequal_pool",
}

// expandBaselines replaces baselinesName by the baselines, each policy once.
func expandBaselines(names []string) []string {
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

// everyRegion as a group's region stands for each of the experiment's places.
const everyRegion = "each"

// expandRegions puts a group with everyRegion into every place, in their order.
func (e *Experiment) expandRegions(fleet []WorkerGroup) []WorkerGroup {
	if !slices.ContainsFunc(fleet, func(g WorkerGroup) bool { return g.Region == everyRegion }) {
		return fleet
	}
	var out []WorkerGroup
	for _, g := range fleet {
		if g.Region != everyRegion {
			out = append(out, g)
		}
	}
	for i := range e.Places {
		for _, g := range fleet {
			if g.Region == everyRegion {
				g.Region = e.Places[i].Name
				out = append(out, g)
			}
		}
	}
	return out
}

// keepFirstRegions keeps the first places, for the small form.
func (e *Experiment) keepFirstRegions() {
	n := e.Small.Places
	if n == 0 || n >= len(e.Places) {
		return
	}
	e.Places = e.Places[:n]
	kept := func(fleet []WorkerGroup) []WorkerGroup {
		return slices.DeleteFunc(slices.Clone(fleet), func(g WorkerGroup) bool {
			return !slices.ContainsFunc(e.Places, func(p RegionLocation) bool { return p.Name == g.Region })
		})
	}
	e.Fleet = kept(e.Fleet)
	for i := range e.Cases {
		e.Cases[i].Fleet = kept(e.Cases[i].Fleet)
	}
}
