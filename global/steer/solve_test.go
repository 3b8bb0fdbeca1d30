package steer_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/spec"
)

func TestPlanIsAlwaysAcceptableAndAnswersEverybody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := world(t)
		res := steer.Solve(in)
		b, err := steer.Encode(res.Plan)
		if err != nil {
			t.Fatal(err)
		}
		if err := steer.Check(nil, b); err != nil {
			t.Fatalf("the guard refuses the planner's own plan: %v", err)
		}
		back, err := steer.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(res.Plan, back); d != "" {
			t.Fatalf("codec changed the plan: %s", d)
		}
		drained, lost := masks(in)
		table := steer.Compile(in.Spec, geography(in), back)
		for c := int32(-1); int(c) < len(in.Cells); c++ {
			q := steer.Query{Cell: c, Key: rapid.Uint64().Draw(t, "key"), Drained: drained, Lost: lost}
			if got := table.Pick(&q); got.Region < 0 || got.Region >= len(in.Spec.Regions) {
				t.Fatalf("cell %d is sent to region %d", c, got.Region)
			}
		}
	})
}

func TestPlanRespectsDrainsAndSharesWhenCapacitySuffices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := world(t)
		room, demand := 0.0, 0.0
		for r, s := range in.Regions {
			if !s.Drained && !s.Lost {
				room += s.Models[0].Rate * in.Spec.Regions[r].MaxShare
			}
		}
		for _, d := range in.Demand {
			demand += d.Rate
		}
		if room == 0 {
			t.Skip("nothing is well")
		}
		// Scale demand to what fits, so that the rule has no excuse.
		if demand > room*0.95 {
			for i := range in.Demand {
				in.Demand[i].Rate *= room * 0.95 / demand
			}
		}
		for r, load := range loads(in, steer.Solve(in).Plan) {
			limit := in.Regions[r].Models[0].Rate * in.Spec.Regions[r].MaxShare
			if in.Regions[r].Drained || in.Regions[r].Lost {
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
		in := world(t)
		a := steer.Solve(in).Plan
		in.Demand = rapid.Permutation(in.Demand).Draw(t, "demand order")
		if d := cmp.Diff(a, steer.Solve(in).Plan); d != "" {
			t.Fatalf("another order of the same reports makes another plan: %s", d)
		}
	})
}

// newYork is Akamai's example: New York is full, and it is the Londoners who go elsewhere.
func newYork() *steer.Input {
	in := &steer.Input{Spec: oneService(2), SpecVersion: 1}
	in.Spec.Regions[0].MaxShare, in.Spec.Regions[1].MaxShare = 1, 1
	in.Regions = []steer.Region{
		{Models: []steer.Model{{Name: model, Rate: 1000}}},
		{Models: []steer.Model{{Name: model, Rate: 5000}}},
	}
	in.Cells = []steer.Cell{
		{Name: "london", RTT: []float32{0.075, 0.090}},
		{Name: "new-york", RTT: []float32{0.010, 0.220}},
	}
	in.Demand = []steer.Demand{
		{Service: service, Model: model, Cell: "london", Rate: 1000},
		{Service: service, Model: model, Cell: "new-york", Rate: 1000},
	}
	return in
}

func TestThoseHurtLeastMoveFirst(t *testing.T) {
	in := newYork()
	plan := steer.Solve(in).Plan
	table := steer.Compile(in.Spec, geography(in), plan)
	if got := table.Pick(&steer.Query{Cell: 1}).Region; got != 0 {
		t.Errorf("New York is sent to %d, want its own region", got)
	}
	if got := table.Pick(&steer.Query{Cell: 0}).Region; got != 1 {
		t.Errorf("London is sent to %d, want the other region", got)
	}
	// At least what it takes to keep London out, at most what New York would pay to stay.
	if p := plan.Services[0].Price[0]; p < 0.015 || p > 0.210 {
		t.Errorf("the full region's price is %.3f s, want at least London's regret of 0.015", p)
	}
}

func TestWithoutDemandEverybodyGoesToTheNearest(t *testing.T) {
	in := newYork()
	in.Demand = nil
	table := steer.Compile(in.Spec, geography(in), steer.Solve(in).Plan)
	for c := range int32(2) {
		if got := table.Pick(&steer.Query{Cell: c}); got.Region != 0 || got.Reason != steer.Nearest {
			t.Errorf("cell %d: %+v, want region 0 as the nearest", c, got)
		}
	}
}

func TestARegionWithoutWorkersGetsNobody(t *testing.T) {
	in := newYork()
	in.Regions[0].Models[0].Rate = 0
	for c := range int32(2) {
		table := steer.Compile(in.Spec, geography(in), steer.Solve(in).Plan)
		if got := table.Pick(&steer.Query{Cell: c}).Region; got != 1 {
			t.Errorf("cell %d is sent to %d, which has no worker", c, got)
		}
	}
}

func TestOverAllCapacityIsSpreadByCapacity(t *testing.T) {
	in := newYork()
	for i := range in.Demand {
		in.Demand[i].Rate = 60000
	}
	got := loads(in, steer.Solve(in).Plan)
	if part := got[0] / (got[0] + got[1]); !close2(part, 1.0/6, 0.05) {
		t.Errorf("the small region gets %.2f of an overload, want about 1/6", part)
	}
}

func TestDeadBandAndSteps(t *testing.T) {
	in := newYork()
	first := steer.Solve(in)
	if !first.Publish || first.Reason != "first" {
		t.Fatalf("first plan: %+v", first)
	}
	in.Prev = first.Plan
	if again := steer.Solve(in); again.Publish {
		t.Fatalf("the same world is published twice: %s", again.Reason)
	}
	in.Demand[0].Rate *= 1.01
	if noise := steer.Solve(in); noise.Publish {
		t.Fatalf("one per cent of noise is published: %s", noise.Reason)
	}
	// New York's demand vanishes: London may come back, a quarter at a time.
	in.Demand[1].Rate = 0
	steps := 0
	for ; steps < 20; steps++ {
		res := steer.Solve(in)
		if !res.Publish {
			break
		}
		before, after := loads(in, in.Prev)[0], loads(in, res.Plan)[0]
		if after-before > 0.26*1010 {
			t.Fatalf("step %d moves %.0f of 1010 tokens/s at once", steps, after-before)
		}
		in.Prev = res.Plan
	}
	// All of what is free at home, 0.82 of its capacity: the rest costs more than London's 15 ms.
	if got := loads(in, in.Prev)[0]; steps < 3 || steps > 8 || got < 0.70*1010 || got > 0.83*1010 {
		t.Fatalf("after %d steps London has %.0f tokens/s at home", steps, got)
	}
}

func TestLossIsNotHeldBackAndReturnIs(t *testing.T) {
	in := newYork()
	in.Prev = steer.Solve(in).Plan
	in.Regions[0].Lost = true
	res := steer.Solve(in)
	if !res.Publish || res.Reason != "regions" || loads(in, res.Plan)[1] < 1999 {
		t.Fatalf("after a loss: %s, loads %v", res.Reason, loads(in, res.Plan))
	}
	in.Prev, in.Regions[0].Lost = res.Plan, false
	table := steer.Compile(in.Spec, geography(in), in.Prev)
	if got := table.Pick(&steer.Query{Cell: 1}).Region; got != 0 {
		t.Errorf("without a leader, a region that is well again stays without clients: New York goes to %d", got)
	}
	for _, want := range []float64{250, 500, 750, 1000} {
		res = steer.Solve(in)
		if got := loads(in, res.Plan)[0]; !res.Publish || got > want+5 || got < want-5 {
			t.Fatalf("on the way back: %s, loads %v, want %v", res.Reason, loads(in, res.Plan), want)
		}
		in.Prev = res.Plan
	}
}

func TestModes(t *testing.T) {
	in := newYork()
	in.Spec.Services = []spec.Service{
		{Name: "f.", Mode: "failover", Order: []string{"r1", "r0"}},
		{Name: "g.", Mode: "geo"},
		{Name: "l.", Mode: "latency", Regions: []string{"r1"}},
		{Name: "w.", Mode: "weighted", Weights: map[string]float64{"r0": 0, "r1": 3}},
	}
	in.Regions[0].Models[0].Wait = 2
	table := steer.Compile(in.Spec, geography(in), steer.Solve(in).Plan)
	var first, second steer.Set
	first.Add(1)
	second.Add(0)
	for _, c := range []struct {
		name string
		q    steer.Query
		want steer.Choice
	}{
		{"failover", steer.Query{Service: 0}, steer.Choice{Region: 1, Reason: steer.Order}},
		{"failover drained", steer.Query{Service: 0, Drained: first}, steer.Choice{Region: 0, Reason: steer.Order}},
		{"geo ignores load", steer.Query{Service: 1}, steer.Choice{Region: 0, Reason: steer.Nearest}},
		{"only allowed", steer.Query{Service: 2}, steer.Choice{Region: 1, Reason: steer.Nearest}},
		{"only allowed, drained", steer.Query{Service: 2, Drained: first}, steer.Choice{Region: 1, Reason: steer.Drained}},
		{"only allowed, lost", steer.Query{Service: 2, Lost: first}, steer.Choice{Region: 1, Reason: steer.Lost}},
		{"weighted", steer.Query{Service: 3}, steer.Choice{Region: 1, Reason: steer.Weight}},
		{"weight zero as last resort", steer.Query{Service: 3, Lost: first}, steer.Choice{Region: 0, Reason: steer.Nearest}},
		{"barred", steer.Query{Service: 2, Barred: first}, steer.Choice{Region: -1}},
		{"drained beats lost", steer.Query{Service: 1, Drained: second, Lost: first}, steer.Choice{Region: 0, Reason: steer.Drained}},
	} {
		if got := table.Pick(&c.q); got != c.want {
			t.Errorf("%s: %+v (%s), want %+v (%s)", c.name, got, got.Reason, c.want, c.want.Reason)
		}
	}
}

func TestGuard(t *testing.T) {
	in := newYork()
	good, err := steer.Encode(steer.Solve(in).Plan)
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func(*steer.Plan)) []byte {
		p, err := steer.Decode(good)
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
		"nothing":          nil,
		"no service":       change(func(p *steer.Plan) { p.Services = nil }),
		"nobody to spread": change(func(p *steer.Plan) { p.Services[0].Spread = nil }),
		"weights short":    change(func(p *steer.Plan) { p.Services[0].Spread[0].Weight-- }),
		"zero weight":      change(func(p *steer.Plan) { p.Services[0].Spread[0].Weight = 0 }),
		"unknown region":   change(func(p *steer.Plan) { p.Services[0].Spread[0].Region = 9 }),
		"empty row":        change(func(p *steer.Plan) { p.Services[0].Rows = []steer.Row{{Cell: "x"}} }),
		"negative price":   change(func(p *steer.Plan) { p.Services[0].Price[0] = -1 }),
		"older spec":       change(func(p *steer.Plan) { p.SpecVersion = 0 }),
		"service dropped":  change(func(p *steer.Plan) { p.Services[0].Name = "other." }),
		"trailing bytes":   append(append([]byte(nil), good...), '{'),
	} {
		if steer.Check(good, bad) == nil {
			t.Errorf("the guard lets %s pass", name)
		}
	}
	if err := steer.Check(good, good); err != nil {
		t.Errorf("the guard refuses a good plan: %v", err)
	}
}
