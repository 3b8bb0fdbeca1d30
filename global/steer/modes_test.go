package steer_test

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/spec"
)

// realisedShares is the part of many networks of a cell that goes to each region.
func realisedShares(in *steer.PlanInput, plan *steer.Plan, cell int32) []float64 {
	table := steer.CompileTable(in.Spec, inputGeography(in), plan)
	drained, lost := outageSets(in)
	out := make([]float64, len(in.Spec.Regions))
	const n = 20000
	for i := range n {
		out[table.PickRegion(&steer.PickQuery{Cell: cell, Key: prefixKey(i), Drained: drained, Unavailable: lost}).Region] += 1.0 / n
	}
	return out
}

// threeRegionInput has regions on a line with the given rates in tokens/s, and one cell next to the first.
func threeRegionInput(demand float64, rates ...float64) *steer.PlanInput {
	in := &steer.PlanInput{Spec: oneService(len(rates)), SpecVersion: 1}
	cell := steer.Cell{Name: "here"}
	for r, rate := range rates {
		in.Spec.Regions[r].MaxShare = 1
		in.Regions = append(in.Regions, steer.RegionState{Models: []steer.ModelCapacity{{Name: testModel, Rate: rate, Ready: 10, Total: 10}}})
		cell.RTT = append(cell.RTT, float32(0.010+0.050*float64(r)))
	}
	in.Cells = []steer.Cell{cell}
	in.Demand = []steer.CellDemand{{Service: testService, Model: testModel, Cell: "here", Rate: demand}}
	return in
}

func TestQuotaCapsARegion(t *testing.T) {
	in := threeRegionInput(1000, 5000, 5000)
	in.Spec.Regions[0].Quotas = map[string]float64{testModel: 300}
	if got := plannedLoads(in, steer.SolvePlan(in).Plan); !isClose(got[0], 300, 10) {
		t.Errorf("a quota of 300 tokens/s lets %.0f in", got[0])
	}
}

func TestPreferredRegionsFillFirst(t *testing.T) {
	in := threeRegionInput(1000, 5000, 5000, 600)
	in.Spec.Regions[2].Preferred = true // the farthest
	got := plannedLoads(in, steer.SolvePlan(in).Plan)
	if !isClose(got[2], 600, 10) || !isClose(got[0], 400, 10) {
		t.Errorf("loads are %v, want reserved capacity full and the rest at the nearest", got)
	}
	in.Regions[2].Dead = true
	if got := plannedLoads(in, steer.SolvePlan(in).Plan); !isClose(got[0], 1000, 1) {
		t.Errorf("without the reserved region loads are %v", got)
	}
}

func TestBiasPercentScalesRTT(t *testing.T) {
	in := threeRegionInput(1000, 5000, 5000)
	in.Spec.Regions[1].BiasPercent = 90 // 60 ms count as 6
	if got := plannedLoads(in, steer.SolvePlan(in).Plan); got[1] != 1000 {
		t.Errorf("loads are %v, want all at the region that looks nearer", got)
	}
	in.Spec.Regions[1].BiasPercent = -90
	if got := plannedLoads(in, steer.SolvePlan(in).Plan); got[0] != 1000 {
		t.Errorf("loads are %v, want all at the nearest", got)
	}
}

func TestEgressCostMovesClients(t *testing.T) {
	in := threeRegionInput(1000, 5000, 5000)
	in.Spec.Regions[0].EgressCost, in.Spec.Regions[1].EgressCost = 10, 1
	if got := plannedLoads(in, steer.SolvePlan(in).Plan); got[0] != 1000 {
		t.Errorf("egress cost counts without dollar_ms: %v", got)
	}
	in.Spec.Steering.DollarMS = 10 // 9 dollars count as 90 ms, the extra RTT is 50
	if got := plannedLoads(in, steer.SolvePlan(in).Plan); got[1] != 1000 {
		t.Errorf("loads are %v, want all at the cheaper region", got)
	}
}

func TestWarmCachesAttractClients(t *testing.T) {
	in := threeRegionInput(1000, 5000, 5000) // a worker computes 500 tokens/s
	in.Spec.Services[0].PrefixTokens = 100
	in.Regions[0].Models[0].CachedPrefixShare, in.Regions[1].Models[0].CachedPrefixShare = 0.1, 0.9
	res := steer.SolvePlan(in)
	if got := plannedLoads(in, res.Plan); got[1] != 1000 { // 160 ms of prefill against 50 ms of RTT
		t.Errorf("loads are %v, want all where the prefixes are", got)
	}
	in.Demand = nil // clients without a row behave alike
	table := steer.CompileTable(in.Spec, inputGeography(in), steer.SolvePlan(in).Plan)
	if got := table.PickRegion(&steer.PickQuery{Cell: 0}).Region; got != 1 {
		t.Errorf("a first client goes to %d", got)
	}
}

func TestSessionsStayForASmallGain(t *testing.T) {
	for tokens, moves := range map[int]bool{0: true, 10: true, 100: false} { // 20 ms and 200 ms of prefill against 50 ms of RTT
		in := threeRegionInput(1000, 5000, 5000)
		in.Spec.Services[0].SessionTokens = tokens
		in.Regions[0].Drained = true
		in.Prev = steer.SolvePlan(in).Plan
		in.Regions[0].Drained = false
		res := steer.SolvePlan(in)
		if got := plannedLoads(in, res.Plan); (got[0] > 0) != moves {
			t.Errorf("sessions of %d tokens: loads are %v (%s)", tokens, got, res.Reason)
		}
	}
}

func TestOnlyWarmCapacityIsSpilledInto(t *testing.T) {
	in := threeRegionInput(1500, 1000, 1000, 50)
	in.Regions[1].Models = []steer.ModelCapacity{{Name: testModel, Total: 100}} // a hundred workers, all cold
	in.Regions[2].Models[0].Ready, in.Regions[2].Models[0].Warm = 1, 9
	got := plannedLoads(in, steer.SolvePlan(in).Plan)
	if got[1] != 0 || !isClose(got[2], 500, 15) {
		t.Errorf("loads are %v, want nothing in the cold region and 500 in the warm one", got)
	}
}

func TestCanaryTakesItsShare(t *testing.T) {
	for _, mode := range []spec.Service{
		{Mode: "latency"},
		{Mode: "geo"},
		{Mode: "weighted", Weights: map[string]float64{"r0": 1, "r1": 1}},
		{Mode: "failover", Order: []string{"r0"}},
	} {
		in := threeRegionInput(1000, 5000, 5000, 5000)
		mode.Name, mode.Canary = testService, spec.Canary{Region: "r2", Share: 0.05}
		in.Spec.Services[0] = mode
		plan := steer.SolvePlan(in).Plan
		got := realisedShares(in, plan, 0)
		if !isClose(got[2], 0.05, 0.01) {
			t.Errorf("%s: the canary gets %.3f, want 0.05", mode.Mode, got[2])
		}
		in.Regions[2].Dead = true
		if got := realisedShares(in, steer.SolvePlan(in).Plan, 0); got[2] > 0 {
			t.Errorf("%s: a lost canary gets %.3f", mode.Mode, got[2])
		}
		in.Regions[2].Dead, in.Regions[0].Dead, in.Regions[1].Dead = false, true, true
		if got := realisedShares(in, steer.SolvePlan(in).Plan, 0); !isClose(got[2], 1, 1e-6) {
			t.Errorf("%s: with everything else lost the canary gets %.3f", mode.Mode, got[2])
		}
	}
}

func TestCanaryClientsStay(t *testing.T) {
	in := threeRegionInput(1000, 5000, 5000, 5000)
	in.Spec.Services[0].Canary = spec.Canary{Region: "r2", Share: 0.05}
	small := steer.CompileTable(in.Spec, inputGeography(in), nil)
	in.Spec.Services[0].Canary.Share = 0.10
	large := steer.CompileTable(in.Spec, inputGeography(in), nil)
	for i := range 5000 {
		q := steer.PickQuery{Cell: 0, Key: prefixKey(i)}
		if a, b := small.PickRegion(&q), large.PickRegion(&q); a.Region == 2 && b.Region != 2 || a.Reason == steer.ReasonCanary && !a.Split {
			t.Fatalf("network %d: %+v with a small canary, %+v with a larger one", i, a, b)
		}
	}
}

func TestPilotLightRegionsServeFailover(t *testing.T) {
	in := threeRegionInput(1000, 2000, 300, 5000)
	in.Spec.Services[0] = spec.Service{Name: testService, Mode: "failover", Order: []string{"r0", "r1", "r2"}, MinWarm: 2}
	if got := realisedShares(in, steer.SolvePlan(in).Plan, 0); !isClose(got[0], 1, 1e-6) {
		t.Errorf("while the first is well: %v", got)
	}
	in.Regions[0].Dead = true
	if got := realisedShares(in, steer.SolvePlan(in).Plan, 0); !isClose(got[1], 0.3, 0.03) || !isClose(got[2], 0.7, 0.03) {
		t.Errorf("the pilot light carries 300 of 1000 tokens/s and gets %v", got)
	}
	in.Regions[1].Models[0].Warm = 10 // as many again can be ready within a second
	if got := realisedShares(in, steer.SolvePlan(in).Plan, 0); !isClose(got[1], 0.6, 0.03) {
		t.Errorf("with warm workers it gets %v", got)
	}
	in.Regions[1].Models[0].Ready, in.Regions[1].Models[0].Warm = 1, 0
	if got := realisedShares(in, steer.SolvePlan(in).Plan, 0); got[1] > 0 {
		t.Errorf("below the least number of workers it gets %v", got)
	}
	in.Regions[2].Dead = true
	if got := realisedShares(in, steer.SolvePlan(in).Plan, 0); !isClose(got[1], 1, 1e-6) {
		t.Errorf("as the last one left it gets %v", got)
	}
}

// TestOtherModesReturnByRamp reduces the clients of a returning region by its ramp.
func TestOtherModesReturnByRamp(t *testing.T) {
	for _, mode := range []spec.Service{
		{Mode: "geo"}, {Mode: "failover", Order: []string{"r0"}},
	} {
		in := threeRegionInput(1000, 5000, 5000)
		mode.Name = testService
		in.Spec.Services[0] = mode
		var back steer.ReturnRamps
		solve := func(s int) []float64 {
			back.MarkRamps(in, time.Unix(int64(s), 0))
			res := steer.SolvePlan(in)
			in.Prev = res.Plan
			return realisedShares(in, res.Plan, 0)
		}
		solve(0)
		in.Regions[0].Drained = true
		if got := solve(10); got[0] > 0 {
			t.Errorf("%s: drained, it gets %v", mode.Mode, got)
		}
		in.Regions[0].Drained = false
		last := 0.0
		for _, c := range []struct {
			at   int
			want float64
		}{{20, 0.125}, {28, 0.375}, {36, 0.625}, {60, 1}} {
			got := solve(c.at)[0]
			if !isClose(got, c.want, 0.02) || got < last {
				t.Errorf("%s: %d s after its return it gets %.3f, want %.3f", mode.Mode, c.at-20, got, c.want)
			}
			last = got
		}
	}
}

// TestNewLeaderContinuesARamp: another planner takes over half-way.
func TestNewLeaderContinuesARamp(t *testing.T) {
	in := threeRegionInput(1000, 5000, 5000)
	var first, second, third steer.ReturnRamps
	in.Regions[0].Dead = true
	first.MarkRamps(in, time.Unix(0, 0))
	in.Prev = steer.SolvePlan(in).Plan
	in.Regions[0].Dead = false
	second.MarkRamps(in, time.Unix(10, 0)) // learns from the plan alone that the region was unavailable
	if in.Regions[0].Ramp != 0.125 {
		t.Errorf("the ramp starts at %v", in.Regions[0].Ramp)
	}
	second.MarkRamps(in, time.Unix(20, 0))
	in.Prev = steer.SolvePlan(in).Plan
	was := in.Regions[0].Ramp
	third.MarkRamps(in, time.Unix(21, 0))
	if in.Regions[0].Ramp < was || in.Regions[0].Ramp > was+0.13 {
		t.Errorf("a new leader goes on at %v after %v", in.Regions[0].Ramp, was)
	}
}
