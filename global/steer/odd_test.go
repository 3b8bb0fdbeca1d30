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

// odd draws numbers that no report should hold, and a few that it should.
func odd(t *rapid.T) float64 {
	return rapid.SampledFrom([]float64{
		math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, math.Copysign(0, -1), 1e-300, 5e-324, 1e-9, 0.5, 1, 1000, 1e15, 1e300, math.MaxFloat64,
	}).Draw(t, "odd")
}

// madWorld is a universe whose reports, and even whose spec, are full of rubbish.
func madWorld(t *rapid.T) *steer.Input {
	in := universe(t)
	for i := range in.Demand {
		in.Demand[i].Rate = odd(t)
	}
	for r := range in.Regions {
		for m := range in.Regions[r].Models {
			x := &in.Regions[r].Models[m]
			x.Rate, x.Wait, x.Ready, x.Warm, x.Total, x.Warmth = odd(t), odd(t), odd(t), odd(t), odd(t), odd(t)
			x.Cold, x.Wake = odd(t), odd(t)
		}
		in.Regions[r].Ramp = odd(t)
		d := &in.Spec.Regions[r]
		d.MaxShare, d.BiasMS, d.BiasPercent, d.EgressCost = odd(t), odd(t), odd(t), odd(t)
		d.Preferred = rapid.Bool().Draw(t, "preferred")
		if rapid.Bool().Draw(t, "quota") {
			d.Quotas = map[string]float64{"m0": odd(t)}
		}
	}
	for c := range in.Cells {
		for r := range in.Cells[c].RTT {
			in.Cells[c].RTT[r] = float32(odd(t))
		}
		if rapid.IntRange(0, 5).Draw(t, "short") == 0 {
			in.Cells[c].RTT = in.Cells[c].RTT[:1]
		}
	}
	for s := range in.Spec.Services {
		svc := &in.Spec.Services[s]
		svc.Canary = spec.Canary{Region: "r0", Share: odd(t)}
		svc.SessionTokens, svc.PrefixTokens = rapid.IntRange(-5, 1e7).Draw(t, "session"), rapid.IntRange(-5, 1e7).Draw(t, "prefix")
		svc.MinWarm = rapid.IntRange(-1, 5).Draw(t, "warm")
		for r := range svc.Weights {
			svc.Weights[r] = odd(t)
		}
	}
	guard := odd(t)
	in.Spec.Steering = spec.Steering{
		DeadBand: odd(t), MaxStep: odd(t), MinShift: odd(t), Slew: odd(t), DollarMS: odd(t), DrainGuard: &guard,
		Interval: spec.Duration(rapid.Int64().Draw(t, "interval")),
	}
	return in
}

func TestRubbishNeverPanicsAndNeverSpreads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := madWorld(t)
		var returns steer.Returns
		var guard steer.Guard
		for epoch := range 3 {
			now := time.Unix(int64(epoch), 0)
			returns.Mark(in, now)
			guard.Mark(in, now)
			res := steer.Solve(in)
			if math.IsNaN(res.Cost) || math.IsNaN(res.PrevCost) || math.IsInf(res.Cost, 0) {
				t.Fatalf("the plan costs %v after %v", res.Cost, res.PrevCost)
			}
			b, err := steer.Encode(res.Plan)
			if err != nil {
				t.Fatal(err)
			}
			if again, _ := steer.Encode(steer.Solve(in).Plan); !bytes.Equal(b, again) {
				t.Fatal("the same input makes another plan")
			}
			if err := steer.Check(nil, b); err != nil {
				t.Fatal(err)
			}
			table := steer.Compile(in.Spec, geography2(in), res.Plan)
			for _, q := range everybody(in, 2) {
				if err := holdsToTheRules(in, table, &q); err != nil {
					t.Fatal(err)
				}
			}
			in.Prev = res.Plan
			for r := range in.Regions {
				in.Regions[r].Drained = rapid.IntRange(0, 3).Draw(t, "drained") == 0
				in.Regions[r].Lost = rapid.IntRange(0, 3).Draw(t, "lost") == 0
			}
		}
	})
}

// geography2 is geography for cells that may know too few regions.
func geography2(in *steer.Input) *steer.Geography {
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

// fleet is regions that have so many of ten workers ready.
func fleet(ready ...float64) *steer.Input {
	in := &steer.Input{Spec: oneService(len(ready)), SpecVersion: 1}
	for _, n := range ready {
		in.Regions = append(in.Regions, steer.Region{Models: []steer.Model{{Name: model, Rate: 100 * n, Ready: n, Total: 10}}})
	}
	return in
}

// wakeful is a Guard that has seen so many regions well.
func wakeful(regions int) (g steer.Guard) {
	ready := make([]float64, regions)
	for r := range ready {
		ready[r] = 10
	}
	g.Mark(fleet(ready...), time.Unix(-1, 0))
	return g
}

func TestGuardLeavesStartingRegionsAlone(t *testing.T) {
	in := fleet(0, 1, 10)
	var g steer.Guard
	if g.Mark(in, time.Unix(0, 0)); len(sickOnes(in)) > 0 {
		t.Errorf("%v are out though they have only begun to start", sickOnes(in))
	}
}

func sickOnes(in *steer.Input) (out []int) {
	for r := range in.Regions {
		if in.Regions[r].Sick {
			out = append(out, r)
		}
	}
	return out
}

func TestGuardNeverTakesMoreThanHalf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ready := rapid.SliceOfN(rapid.Float64Range(0, 10), 1, 10).Draw(t, "ready")
		in := fleet(ready...)
		g := wakeful(len(ready))
		for s := range 5 {
			for r := range in.Regions {
				in.Regions[r].Models[0].Ready = rapid.Float64Range(0, 10).Draw(t, "now")
				in.Regions[r].Models[0].Total = rapid.Float64Range(0, 30).Draw(t, "total")
			}
			g.Mark(in, time.Unix(int64(s*30), 0))
			all, out := 0.0, 0.0
			for r := range in.Regions {
				all += in.Regions[r].Models[0].Total
				if in.Regions[r].Sick {
					out += in.Regions[r].Models[0].Total
				}
			}
			if out > all/2+1e-9 {
				t.Fatalf("%v of %v workers are kept out", out, all)
			}
		}
	})
}

func TestGuardTakesTheWorstAndBringsItBackLater(t *testing.T) {
	in := fleet(2, 1, 10, 10)
	g := wakeful(4)
	at := func(s int) { g.Mark(in, time.Unix(int64(s), 0)) }
	if at(0); len(sickOnes(in)) != 2 {
		t.Errorf("%v are out, want the two with a quarter of their workers or less", sickOnes(in))
	}
	in = fleet(2, 1, 2, 2)
	g = wakeful(4)
	if at(0); len(sickOnes(in)) != 2 || !in.Regions[1].Sick {
		t.Errorf("%v are out, want no more than half, the worst first", sickOnes(in))
	}
	in = fleet(1, 10, 10)
	g = wakeful(3)
	at(0)
	in.Regions[0].Models[0].Ready = 3 // better, but not well: three tenths
	if at(1); !in.Regions[0].Sick {
		t.Error("a region returns below 0.35 of its workers")
	}
	in.Regions[0].Models[0].Ready = 4
	if at(2); !in.Regions[0].Sick {
		t.Error("a region returns at once")
	}
	if at(61); !in.Regions[0].Sick {
		t.Error("a region returns before a minute is over")
	}
	if at(63); in.Regions[0].Sick {
		t.Error("a region does not return after a minute")
	}
}

func TestNoDataIsNotUnhealthy(t *testing.T) {
	in := fleet(10, 10, 10)
	in.Regions[0].Models = nil // nothing is known
	g := wakeful(3)
	g.Mark(in, time.Unix(0, 0))
	if out := sickOnes(in); len(out) > 0 {
		t.Errorf("%v are out though nobody said they are unwell", out)
	}
}

func TestASickRegionGetsNobodyUnlessThereIsNobodyElse(t *testing.T) {
	in := newYork()
	in.Regions[0].Sick = true
	if got := loads(in, steer.Solve(in).Plan); got[0] != 0 {
		t.Errorf("a sick region gets %.0f tokens/s", got[0])
	}
	in.Regions[1].Sick = true
	table := steer.Compile(in.Spec, geography(in), steer.Solve(in).Plan)
	if got := table.Pick(&steer.Query{Cell: 1}).Region; got != 0 {
		t.Errorf("with everything sick, New York goes to %d", got)
	}
}

func TestGuardOffDrainsNothing(t *testing.T) {
	in := fleet(0, 10)
	off := 0.0
	in.Spec.Steering.DrainGuard = &off
	g := wakeful(2)
	if g.Mark(in, time.Unix(0, 0)); len(sickOnes(in)) > 0 {
		t.Error("a guard of 0 still takes a region out")
	}
}
