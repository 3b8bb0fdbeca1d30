package steer_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/spec"
)

func TestPlanIsAlwaysValidAndAnswersEveryClient(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawWorld(t)
		res := steer.SolvePlan(in)
		b, err := steer.EncodePlan(res.Plan)
		if err != nil {
			t.Fatal(err)
		}
		if err := steer.CheckPlan(nil, b); err != nil {
			t.Fatalf("the guard refuses the planner's own plan: %v", err)
		}
		back, err := steer.DecodePlan(b)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(res.Plan, back); d != "" {
			t.Fatalf("codec changed the plan: %s", d)
		}
		drained, lost := outageSets(in)
		table := steer.CompileTable(in.Spec, inputGeography(in), back)
		for c := int32(-1); int(c) < len(in.Cells); c++ {
			q := steer.PickQuery{Cell: c, Key: rapid.Uint64().Draw(t, "key"), Drained: drained, Unavailable: lost}
			if got := table.PickRegion(&q); got.Region < 0 || got.Region >= len(in.Spec.Regions) {
				t.Fatalf("cell %d is sent to region %d", c, got.Region)
			}
		}
	})
}

func TestPlanRespectsDrainsAndSharesWhenCapacitySuffices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawWorld(t)
		room, demand := 0.0, 0.0
		for r, s := range in.Regions {
			if !s.Drained && !s.Dead {
				room += s.Models[0].Rate * in.Spec.Regions[r].MaxShare
			}
		}
		for _, d := range in.Demand {
			demand += d.Rate
		}
		if room == 0 {
			t.Skip("nothing is well")
		}
		// Scale demand to what fits, so that the rule must hold.
		if demand > room*0.95 {
			for i := range in.Demand {
				in.Demand[i].Rate *= room * 0.95 / demand
			}
		}
		for r, load := range plannedLoads(in, steer.SolvePlan(in).Plan) {
			limit := in.Regions[r].Models[0].Rate * in.Spec.Regions[r].MaxShare
			if in.Regions[r].Drained || in.Regions[r].Dead {
				limit = 0
			}
			if load > limit+0.01*demand+1 {
				t.Fatalf("region %d gets %.0f tokens/s, its limit is %.0f", r, load, limit)
			}
		}
	})
}

func TestPlanDoesNotDependOnTheOrderOfReports(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawWorld(t)
		a := steer.SolvePlan(in).Plan
		in.Demand = rapid.Permutation(in.Demand).Draw(t, "demand order")
		if d := cmp.Diff(a, steer.SolvePlan(in).Plan); d != "" {
			t.Fatalf("another order of the same reports makes another plan: %s", d)
		}
	})
}

// newYorkInput is Akamai's example: New York is full, and clients in London go elsewhere.
func newYorkInput() *steer.PlanInput {
	in := &steer.PlanInput{Spec: oneService(2), SpecVersion: 1}
	in.Spec.Regions[0].MaxShare, in.Spec.Regions[1].MaxShare = 1, 1
	in.Regions = []steer.RegionState{
		{Models: []steer.ModelCapacity{{Name: testModel, Rate: 1000}}},
		{Models: []steer.ModelCapacity{{Name: testModel, Rate: 5000}}},
	}
	in.Cells = []steer.Cell{
		{Name: "london", RTT: []float32{0.075, 0.090}},
		{Name: "new-york", RTT: []float32{0.010, 0.220}},
	}
	in.Demand = []steer.CellDemand{
		{Service: testService, Model: testModel, Cell: "london", Rate: 1000},
		{Service: testService, Model: testModel, Cell: "new-york", Rate: 1000},
	}
	return in
}

func TestCheapestMovesComeFirst(t *testing.T) {
	in := newYorkInput()
	plan := steer.SolvePlan(in).Plan
	table := steer.CompileTable(in.Spec, inputGeography(in), plan)
	if got := table.PickRegion(&steer.PickQuery{Cell: 1}).Region; got != 0 {
		t.Errorf("New York is sent to %d, want its own region", got)
	}
	if got := table.PickRegion(&steer.PickQuery{Cell: 0}).Region; got != 1 {
		t.Errorf("London is sent to %d, want the other region", got)
	}
	// At least the price that keeps London out, at most what New York would pay to stay.
	if p := plan.Services[0].Price[0]; p < 0.015 || p > 0.210 {
		t.Errorf("the full region's price is %.3f s, want at least London's regret of 0.015", p)
	}
}

func TestWithoutDemandClientsGoToTheNearestRegion(t *testing.T) {
	in := newYorkInput()
	in.Demand = nil
	table := steer.CompileTable(in.Spec, inputGeography(in), steer.SolvePlan(in).Plan)
	for c := range int32(2) {
		if got := table.PickRegion(&steer.PickQuery{Cell: c}); got.Region != 0 || got.Reason != steer.ReasonNearest {
			t.Errorf("cell %d: %+v, want region 0 as the nearest", c, got)
		}
	}
}

func TestRegionWithoutWorkersGetsNoClients(t *testing.T) {
	in := newYorkInput()
	in.Regions[0].Models[0].Rate = 0
	for c := range int32(2) {
		table := steer.CompileTable(in.Spec, inputGeography(in), steer.SolvePlan(in).Plan)
		if got := table.PickRegion(&steer.PickQuery{Cell: c}).Region; got != 1 {
			t.Errorf("cell %d is sent to %d, which has no worker", c, got)
		}
	}
}

func TestOverloadIsSpreadByCapacity(t *testing.T) {
	in := newYorkInput()
	for i := range in.Demand {
		in.Demand[i].Rate = 60000
	}
	got := plannedLoads(in, steer.SolvePlan(in).Plan)
	if part := got[0] / (got[0] + got[1]); !isClose(part, 1.0/6, 0.05) {
		t.Errorf("the small region gets %.2f of an overload, want about 1/6", part)
	}
}

func TestDeadBandAndLargestStep(t *testing.T) {
	in := newYorkInput()
	first := steer.SolvePlan(in)
	if !first.Publish || first.Reason != "first" {
		t.Fatalf("first plan: %+v", first)
	}
	in.Prev = first.Plan
	if again := steer.SolvePlan(in); again.Publish {
		t.Fatalf("the same world is published twice: %s", again.Reason)
	}
	in.Demand[0].Rate *= 1.01
	if noise := steer.SolvePlan(in); noise.Publish {
		t.Fatalf("one per cent of noise is published: %s", noise.Reason)
	}
	// New York's demand vanishes: London may return, a quarter at a time.
	in.Demand[1].Rate = 0
	steps := 0
	for ; steps < 20; steps++ {
		res := steer.SolvePlan(in)
		if !res.Publish {
			break
		}
		before, after := plannedLoads(in, in.Prev)[0], plannedLoads(in, res.Plan)[0]
		if after-before > 0.26*1010 {
			t.Fatalf("step %d moves %.0f of 1010 tokens/s at once", steps, after-before)
		}
		in.Prev = res.Plan
	}
	// All free capacity at home, 0.82 of it: the rest costs more than London's 15 ms.
	if got := plannedLoads(in, in.Prev)[0]; steps < 3 || steps > 8 || got < 0.70*1010 || got > 0.83*1010 {
		t.Fatalf("after %d steps London has %.0f tokens/s at home", steps, got)
	}
}

func TestLossIsImmediateAndReturnIsRamped(t *testing.T) {
	in := newYorkInput()
	in.Prev = steer.SolvePlan(in).Plan
	in.Regions[0].Dead = true
	res := steer.SolvePlan(in)
	if !res.Publish || res.Reason != "regions" || plannedLoads(in, res.Plan)[1] < 1999 {
		t.Fatalf("after a loss: %s, loads %v", res.Reason, plannedLoads(in, res.Plan))
	}
	in.Prev, in.Regions[0].Dead = res.Plan, false
	table := steer.CompileTable(in.Spec, inputGeography(in), in.Prev)
	if got := table.PickRegion(&steer.PickQuery{Cell: 1}).Region; got != 0 {
		t.Errorf("without a leader, a region that is well again stays without clients: New York goes to %d", got)
	}
	for _, want := range []float64{250, 500, 750, 1000} {
		res = steer.SolvePlan(in)
		if got := plannedLoads(in, res.Plan)[0]; !res.Publish || got > want+5 || got < want-5 {
			t.Fatalf("on the way back: %s, loads %v, want %v", res.Reason, plannedLoads(in, res.Plan), want)
		}
		in.Prev = res.Plan
	}
}

func TestSteeringModes(t *testing.T) {
	in := newYorkInput()
	in.Spec.Services = []spec.Service{
		{Name: "f.", Mode: "failover", Order: []string{"r1", "r0"}},
		{Name: "g.", Mode: "geo"},
		{Name: "l.", Mode: "latency", Regions: []string{"r1"}},
		{Name: "w.", Mode: "weighted", Weights: map[string]float64{"r0": 0, "r1": 3}},
	}
	in.Regions[0].Models[0].Wait = 2
	table := steer.CompileTable(in.Spec, inputGeography(in), steer.SolvePlan(in).Plan)
	var first, second steer.RegionSet
	first.Add(1)
	second.Add(0)
	for _, c := range []struct {
		name string
		q    steer.PickQuery
		want steer.Choice
	}{
		{"failover", steer.PickQuery{Service: 0}, steer.Choice{Region: 1, Reason: steer.ReasonOrder}},
		{"failover drained", steer.PickQuery{Service: 0, Drained: first}, steer.Choice{Region: 0, Reason: steer.ReasonOrder}},
		{"geo ignores load", steer.PickQuery{Service: 1}, steer.Choice{Region: 0, Reason: steer.ReasonNearest}},
		{"only allowed", steer.PickQuery{Service: 2}, steer.Choice{Region: 1, Reason: steer.ReasonNearest}},
		{"only allowed, drained", steer.PickQuery{Service: 2, Drained: first}, steer.Choice{Region: 1, Reason: steer.ReasonAllDrained}},
		{"only allowed, lost", steer.PickQuery{Service: 2, Unavailable: first}, steer.Choice{Region: 1, Reason: steer.ReasonAllUnavailable}},
		{"weighted", steer.PickQuery{Service: 3}, steer.Choice{Region: 1, Reason: steer.ReasonWeight}},
		{"weight zero as last resort", steer.PickQuery{Service: 3, Unavailable: first}, steer.Choice{Region: 0, Reason: steer.ReasonNearest}},
		{"barred", steer.PickQuery{Service: 2, Excluded: first}, steer.Choice{Region: -1}},
		{"drained beats lost", steer.PickQuery{Service: 1, Drained: second, Unavailable: first}, steer.Choice{Region: 0, Reason: steer.ReasonAllDrained}},
	} {
		if got := table.PickRegion(&c.q); got != c.want {
			t.Errorf("%s: %+v (%s), want %+v (%s)", c.name, got, got.Reason, c.want, c.want.Reason)
		}
	}
}

func TestCheckPlanRefusesBadPlans(t *testing.T) {
	in := newYorkInput()
	good, err := steer.EncodePlan(steer.SolvePlan(in).Plan)
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func(*steer.Plan)) []byte {
		p, err := steer.DecodePlan(good)
		if err != nil {
			t.Fatal(err)
		}
		f(p)
		b, err := steer.EncodeAny(p)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, bad := range map[string][]byte{
		"nothing":         nil,
		"no service":      change(func(p *steer.Plan) { p.Services = nil }),
		"no spread":       change(func(p *steer.Plan) { p.Services[0].Spread = nil }),
		"weights short":   change(func(p *steer.Plan) { p.Services[0].Spread[0].Weight-- }),
		"zero weight":     change(func(p *steer.Plan) { p.Services[0].Spread[0].Weight = 0 }),
		"unknown region":  change(func(p *steer.Plan) { p.Services[0].Spread[0].Region = 9 }),
		"empty row":       change(func(p *steer.Plan) { p.Services[0].Rows = []steer.CellRow{{Cell: "x"}} }),
		"negative price":  change(func(p *steer.Plan) { p.Services[0].Price[0] = -1 }),
		"older spec":      change(func(p *steer.Plan) { p.SpecVersion = 0 }),
		"service dropped": change(func(p *steer.Plan) { p.Services[0].Name = "other." }),
		"trailing bytes":  append(append([]byte(nil), good...), '{'),
	} {
		if steer.CheckPlan(good, bad) == nil {
			t.Errorf("the guard lets %s pass", name)
		}
	}
	if err := steer.CheckPlan(good, good); err != nil {
		t.Errorf("the guard refuses a good plan: %v", err)
	}
}
