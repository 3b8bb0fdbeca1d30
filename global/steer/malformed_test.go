package steer_test

import (
	"bytes"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/spec"
)

// drawOddNumber draws numbers that no report should contain, and a few valid ones.
func drawOddNumber(t *rapid.T) float64 {
	return rapid.SampledFrom([]float64{
		math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, math.Copysign(0, -1), 1e-300, 5e-324, 1e-9, 0.5, 1, 1000, 1e15, 1e300, math.MaxFloat64,
	}).Draw(t, "odd")
}

// drawMalformedInput draws an input with invalid numbers in reports and in the spec.
func drawMalformedInput(t *rapid.T) *steer.PlanInput {
	in := drawInput(t)
	for i := range in.Demand {
		in.Demand[i].Rate = drawOddNumber(t)
	}
	for r := range in.Regions {
		for m := range in.Regions[r].Models {
			x := &in.Regions[r].Models[m]
			x.Rate, x.Wait, x.Ready, x.Warm, x.Total, x.CachedPrefixShare = drawOddNumber(t), drawOddNumber(t), drawOddNumber(t), drawOddNumber(t), drawOddNumber(t), drawOddNumber(t)
			x.Cold, x.WakeSeconds = drawOddNumber(t), drawOddNumber(t)
		}
		in.Regions[r].Ramp = drawOddNumber(t)
		d := &in.Spec.Regions[r]
		d.MaxShare, d.BiasMS, d.BiasPercent, d.EgressCost = drawOddNumber(t), drawOddNumber(t), drawOddNumber(t), drawOddNumber(t)
		d.Preferred = rapid.Bool().Draw(t, "preferred")
		if rapid.Bool().Draw(t, "quota") {
			d.Quotas = map[string]float64{"m0": drawOddNumber(t)}
		}
	}
	for c := range in.Cells {
		for r := range in.Cells[c].RTT {
			in.Cells[c].RTT[r] = float32(drawOddNumber(t))
		}
		if rapid.IntRange(0, 5).Draw(t, "short") == 0 {
			in.Cells[c].RTT = in.Cells[c].RTT[:1]
		}
	}
	for s := range in.Spec.Services {
		svc := &in.Spec.Services[s]
		svc.Canary = spec.Canary{Region: "r0", Share: drawOddNumber(t)}
		svc.SessionTokens, svc.PrefixTokens = rapid.IntRange(-5, 1e7).Draw(t, "session"), rapid.IntRange(-5, 1e7).Draw(t, "prefix")
		svc.MinWarm = rapid.IntRange(-1, 5).Draw(t, "warm")
		for r := range svc.Weights {
			svc.Weights[r] = drawOddNumber(t)
		}
	}
	guard := drawOddNumber(t)
	in.Spec.Steering = spec.Steering{
		DeadBand: drawOddNumber(t), MaxStep: drawOddNumber(t), MinShift: drawOddNumber(t), Slew: drawOddNumber(t), DollarMS: drawOddNumber(t), DrainGuard: &guard,
		Interval: spec.Duration(rapid.Int64().Draw(t, "interval")),
	}
	return in
}

func TestMalformedInputNeverPanicsAndNeverSpreads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawMalformedInput(t)
		var returns steer.ReturnRamps
		var guard steer.RegionHealthGuard
		for epoch := range 3 {
			now := time.Unix(int64(epoch), 0)
			returns.MarkRamps(in, now)
			guard.MarkUnhealthy(in, now)
			res := steer.SolvePlan(in)
			if math.IsNaN(res.Cost) || math.IsNaN(res.PrevCost) || math.IsInf(res.Cost, 0) {
				t.Fatalf("the plan costs %v after %v", res.Cost, res.PrevCost)
			}
			b, err := steer.EncodePlan(res.Plan)
			if err != nil {
				t.Fatal(err)
			}
			if again, _ := steer.EncodePlan(steer.SolvePlan(in).Plan); !bytes.Equal(b, again) {
				t.Fatal("the same input makes another plan")
			}
			if err := steer.CheckPlan(nil, b); err != nil {
				t.Fatal(err)
			}
			table := steer.CompileTable(in.Spec, partialGeography(in), res.Plan)
			for _, q := range allQueries(in, 2) {
				if err := checkAnswer(in, table, &q); err != nil {
					t.Fatal(err)
				}
			}
			in.Prev = res.Plan
			for r := range in.Regions {
				in.Regions[r].Drained = rapid.IntRange(0, 3).Draw(t, "drained") == 0
				in.Regions[r].Dead = rapid.IntRange(0, 3).Draw(t, "lost") == 0
			}
		}
	})
}

// partialGeography is a geography for cells that may have RTTs of too few regions.
func partialGeography(in *steer.PlanInput) *steer.Geography {
	var names []string
	var rtt []float32
	for _, c := range in.Cells {
		names = append(names, c.Name)
		for r := range in.Spec.Regions {
			if r < len(c.RTT) {
				rtt = append(rtt, c.RTT[r])
			} else {
				rtt = append(rtt, 0)
			}
		}
	}
	return steer.NewGeography(len(in.Spec.Regions), names, rtt)
}

// inputWithReady is regions of ten workers with the given numbers ready.
func inputWithReady(ready ...float64) *steer.PlanInput {
	in := &steer.PlanInput{Spec: oneService(len(ready)), SpecVersion: 1}
	for _, n := range ready {
		in.Regions = append(in.Regions, steer.RegionState{Models: []steer.ModelCapacity{{Name: testModel, Rate: 100 * n, Ready: n, Total: 10}}})
	}
	return in
}

// newSeenGuard is a guard that has seen the given number of regions healthy.
func newSeenGuard(regions int) (g steer.RegionHealthGuard) {
	ready := make([]float64, regions)
	for r := range ready {
		ready[r] = 10
	}
	g.MarkUnhealthy(inputWithReady(ready...), time.Unix(-1, 0))
	return g
}

func TestGuardIgnoresStartingRegions(t *testing.T) {
	in := inputWithReady(0, 1, 10)
	var g steer.RegionHealthGuard
	if g.MarkUnhealthy(in, time.Unix(0, 0)); len(unhealthyRegions(in)) > 0 {
		t.Errorf("%v are out though they have only begun to start", unhealthyRegions(in))
	}
}

func unhealthyRegions(in *steer.PlanInput) (out []int) {
	for r := range in.Regions {
		if in.Regions[r].Unhealthy {
			out = append(out, r)
		}
	}
	return out
}

func TestGuardRemovesAtMostHalf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ready := rapid.SliceOfN(rapid.Float64Range(0, 10), 1, 10).Draw(t, "ready")
		in := inputWithReady(ready...)
		g := newSeenGuard(len(ready))
		for s := range 5 {
			for r := range in.Regions {
				in.Regions[r].Models[0].Ready = rapid.Float64Range(0, 10).Draw(t, "now")
				in.Regions[r].Models[0].Total = rapid.Float64Range(0, 30).Draw(t, "total")
			}
			g.MarkUnhealthy(in, time.Unix(int64(s*30), 0))
			all, out := 0.0, 0.0
			for r := range in.Regions {
				all += in.Regions[r].Models[0].Total
				if in.Regions[r].Unhealthy {
					out += in.Regions[r].Models[0].Total
				}
			}
			if out > all/2+1e-9 {
				t.Fatalf("%v of %v workers are kept out", out, all)
			}
		}
	})
}

func TestGuardRemovesTheWorstAndRestoresItLater(t *testing.T) {
	in := inputWithReady(2, 1, 10, 10)
	g := newSeenGuard(4)
	at := func(s int) { g.MarkUnhealthy(in, time.Unix(int64(s), 0)) }
	if at(0); len(unhealthyRegions(in)) != 2 {
		t.Errorf("%v are out, want the two with a quarter of their workers or less", unhealthyRegions(in))
	}
	in = inputWithReady(2, 1, 2, 2)
	g = newSeenGuard(4)
	if at(0); len(unhealthyRegions(in)) != 2 || !in.Regions[1].Unhealthy {
		t.Errorf("%v are out, want no more than half, the worst first", unhealthyRegions(in))
	}
	in = inputWithReady(1, 10, 10)
	g = newSeenGuard(3)
	at(0)
	in.Regions[0].Models[0].Ready = 3 // better, but not healthy: three tenths
	if at(1); !in.Regions[0].Unhealthy {
		t.Error("a region returns below 0.35 of its workers")
	}
	in.Regions[0].Models[0].Ready = 4
	if at(2); !in.Regions[0].Unhealthy {
		t.Error("a region returns at once")
	}
	if at(61); !in.Regions[0].Unhealthy {
		t.Error("a region returns before a minute is over")
	}
	if at(63); in.Regions[0].Unhealthy {
		t.Error("a region does not return after a minute")
	}
}

func TestNoDataIsNotUnhealthy(t *testing.T) {
	in := inputWithReady(10, 10, 10)
	in.Regions[0].Models = nil // no reports
	g := newSeenGuard(3)
	g.MarkUnhealthy(in, time.Unix(0, 0))
	if out := unhealthyRegions(in); len(out) > 0 {
		t.Errorf("%v are excluded without reports", out)
	}
}

func TestUnhealthyRegionIsUsedOnlyAsLastResort(t *testing.T) {
	in := newYorkInput()
	in.Regions[0].Unhealthy = true
	if got := plannedLoads(in, steer.SolvePlan(in).Plan); got[0] != 0 {
		t.Errorf("an unhealthy region gets %.0f tokens/s", got[0])
	}
	in.Regions[1].Unhealthy = true
	table := steer.CompileTable(in.Spec, inputGeography(in), steer.SolvePlan(in).Plan)
	if got := table.PickRegion(&steer.PickQuery{Cell: 1}).Region; got != 0 {
		t.Errorf("with every region unhealthy, New York goes to %d", got)
	}
}

func TestDisabledGuardRemovesNothing(t *testing.T) {
	in := inputWithReady(0, 10)
	off := 0.0
	in.Spec.Steering.DrainGuard = &off
	g := newSeenGuard(2)
	if g.MarkUnhealthy(in, time.Unix(0, 0)); len(unhealthyRegions(in)) > 0 {
		t.Error("a guard of 0 still takes a region out")
	}
}
