package steer

import "github.com/spillway-lb/spillway/internal/spec"

// PlanInput is everything that a plan depends on.
type PlanInput struct {
	Spec        *spec.Spec
	SpecVersion uint64
	// Cells are the client locations that demand may refer to. Demand from a cell that is not listed cannot be placed
	// by distance.
	Cells []Cell
	// Regions holds the state of each region, in the order of Spec.Regions.
	Regions []RegionState
	// Demand is the demand that clients offer, including refused and queued work.
	Demand []CellDemand
	// HeavyHitters are the client networks with the most demand of their cells; their demand is included in Demand.
	HeavyHitters []HeavyHitter
	// Prev is the plan in force, or nil.
	Prev *Plan
	// Memory is the solver's state, or nil. It makes the next SolvePlan cheaper.
	Memory *SolverMemory
}

// Cell is a set of client networks that share a location.
type Cell struct {
	Name string
	RTT  []float32 // seconds, by region in the order of Spec.Regions
}

// RegionState is the state of one region as reported to the planner.
type RegionState struct {
	Drained bool
	Dead    bool
	// Stale means that this node no longer receives the region's reports: Models and the demand that arrives in the
	// region are those of the last one.
	Stale bool
	// Ramp is the fraction of its capacity that a returning region may get, below 1; 0 means all of it.
	Ramp float64
	// Unhealthy regions have too few healthy workers and get no clients while another region has room. See
	// RegionHealthGuard.
	Unhealthy bool
	Models    []ModelCapacity
}

// ModelCapacity is one region's capacity for one model.
type ModelCapacity struct {
	Name string
	Rate float64 // prefill-equivalent tokens/s of all ready workers
	Wait float64 // seconds, predicted and smoothed
	// Ready workers have the Rate. Warm ones can be ready within about a second and are used before the reserve. Cold
	// ones need a model load and are no capacity, but they are healthy.
	Ready, Warm, Cold float64
	// WakeSeconds is how long the fastest warm worker takes to become ready, in seconds; 0: unknown.
	WakeSeconds float64
	// Total is the number of workers in any state; 0: unknown.
	Total float64
	// CachedPrefixShare is the fraction of the model's hot prefixes that the region's caches hold, 0..1.
	CachedPrefixShare float64
	// Hardware splits Ready and Rate by GPU type; nil: unknown.
	Hardware []HardwareCapacity
}

// HardwareCapacity is a region's ready workers of one GPU type for one model.
type HardwareCapacity struct {
	Name  string
	Ready float64
	Rate  float64 // prefill-equivalent tokens/s of all of them
}

// CellDemand is what the clients of one cell offer for one service and model.
type CellDemand struct {
	Service, Model, Cell string
	Region               string  // where it arrived; used only for demand that no service of the spec steers
	Rate                 float64 // prefill-equivalent tokens/s
}

// allowedRegions is the set of regions that may answer for a service. A list without any existing region means all.
func allowedRegions(s *spec.Spec, svc *spec.Service) RegionSet {
	var out RegionSet
	for i := range s.Regions {
		if i < MaxRegions && containsName(svc.Regions, s.Regions[i].Name) {
			out.Add(i)
		}
	}
	if !out.IsEmpty() {
		return out
	}
	for i := range s.Regions {
		if i < MaxRegions {
			out.Add(i)
		}
	}
	return out
}

func containsName(list []string, s string) bool {
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
