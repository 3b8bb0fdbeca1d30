package steer

import "github.com/spillway-lb/spillway/internal/spec"

// Input is everything that a plan depends on.
type Input struct {
	Spec        *spec.Spec
	SpecVersion uint64
	// Cells are the places that demand may name. Demand from a cell that is not listed cannot be placed by distance.
	Cells []Cell
	// Regions holds the state of each region, in the order of Spec.Regions.
	Regions []Region
	// Demand is what clients offer, refused and queued work included.
	Demand []Demand
	// Heavy are the client networks that ask for most of their cells; they are part of Demand.
	Heavy []Heavy
	// Prev is the plan in force, or nil.
	Prev *Plan
	// Memory is the solver's own, or nil. It makes the next Solve cheaper.
	Memory *Memory
}

// Cell is a set of client networks that share a location.
type Cell struct {
	Name string
	RTT  []float32 // seconds, by region in the order of Spec.Regions
}

// Region is the state of one region as the planner knows it.
type Region struct {
	Drained bool
	Lost    bool
	// Ramp is the part of its capacity that a region on its way back may get, below 1; 0 means all of it.
	Ramp float64
	// Sick regions have too few workers that are well and get nobody while another has room. See Guard.
	Sick   bool
	Models []Model
}

// Model is one region's capacity for one model.
type Model struct {
	Name string
	Rate float64 // prefill-equivalent tokens/s of all ready workers
	Wait float64 // seconds, predicted and smoothed
	// Ready workers have the Rate. Warm ones would be ready within a second or so and are used before the reserve. Cold
	// ones need a load and are no capacity, but they are well.
	Ready, Warm, Cold float64
	// Wake is how long the soonest of the warm ones takes to be ready, in seconds; 0: not known.
	Wake float64
	// Total is how many workers there are in any state; 0: not known.
	Total float64
	// Warmth is the part of the model's hot prefixes that the region's caches hold, 0..1.
	Warmth float64
	// Hardware splits Ready and Rate by GPU type; nil: not known.
	Hardware []Hardware
}

// Hardware is a region's ready workers of one GPU type for one model.
type Hardware struct {
	Name  string
	Ready float64
	Rate  float64 // prefill-equivalent tokens/s of all of them
}

// Demand is what the clients of one cell offer for one service and model.
type Demand struct {
	Service, Model, Cell string
	Region               string  // where it arrived; Solve uses it only for demand that no service of the spec steers
	Rate                 float64 // prefill-equivalent tokens/s
}

// allowed is the set of regions that may answer for a service. A list that names none that exist means all.
func allowed(s *spec.Spec, svc *spec.Service) Set {
	var out Set
	for i := range s.Regions {
		if i < MaxRegions && contains(svc.Regions, s.Regions[i].Name) {
			out.Add(i)
		}
	}
	if !out.Empty() {
		return out
	}
	for i := range s.Regions {
		if i < MaxRegions {
			out.Add(i)
		}
	}
	return out
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}

func regionIndex(s *spec.Spec, name string) int {
	for i := range s.Regions {
		if s.Regions[i].Name == name {
			return i
		}
	}
	return -1
}
