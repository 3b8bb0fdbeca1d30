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

// rampShare is the fraction of its capacity that the region takes, 0..1.
func (r *RegionState) rampShare() float64 {
	if r.Ramp > 0 && r.Ramp < 1 {
		return r.Ramp
	}
	return 1
}

// clampFinite limits v to [-most, most]; NaN becomes 0.
func clampFinite(v, most float64) float64 {
	if v != v {
		return 0
	}
	return max(-most, min(most, v))
}

// clampAmount limits a reported rate to [0, maxRate]; NaN becomes 0.
func clampAmount(v float64) float64 { return max(0, clampFinite(v, maxRate)) }

// maxRate is above any real demand, in tokens/s.
const maxRate = 1e15

// regionRTT is a cell's RTT to region r, in seconds.
func (c *Cell) regionRTT(r int) float64 {
	if r >= len(c.RTT) {
		return 0
	}
	return max(0, clampFinite(float64(c.RTT[r]), maxWaitSeconds))
}
