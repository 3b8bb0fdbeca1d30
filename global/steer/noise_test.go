package steer

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestNoiseOnDemand is the reference's dead-band experiment: demand wanders by 16 % and a plan is published only when it
// gains more than the dead band. There, 5 % published in 30 % of epochs, moved 1.15 % of demand and cost 2.2 %; 10 % in
// 15 %, 0.76 % and 4.1 %. Ours publishes less often at 5 % and moves less; it must not pay for that with overload.
func TestNoiseOnDemand(t *testing.T) {
	for _, c := range []struct{ band, most, moved, over float64 }{{0.05, 0.30, 0.0115, 0.035}, {0.10, 0.15, 0.0076, 0.06}} {
		w := wander(c.band, 100)
		t.Logf("dead band %.2f: %+v", c.band, w)
		if w.published > c.most || w.moved > c.moved || w.over > c.over || w.beyond > 0.004 {
			t.Errorf("dead band %.2f: %+v", c.band, w)
		}
	}
}

// wandering is what a wandering demand brings about, each on the mean over epochs.
type wandering struct {
	published float64 // part of the epochs
	moved     float64 // part of the demand that a plan moves
	over      float64 // excess of cost over the best
	beyond    float64 // part of the demand that is over what its region can do
}

func wander(band float64, epochs int) (w wandering) {
	in := planet(200, 1, true)
	in.Spec.Steering.DeadBand = band
	rng := rand.New(rand.NewPCG(5, 5))
	base, level := append([]Demand(nil), in.Demand...), make([]float64, len(in.Demand))
	in.Prev = Solve(in).Plan
	for range epochs {
		for i := range level {
			level[i] = 0.95*level[i] + 0.05*rng.NormFloat64()
			in.Demand[i].Rate = base[i].Rate * math.Exp(level[i])
		}
		res := Solve(in)
		before, after := split(in, in.Prev), split(in, res.Plan)
		load := make([]float64, len(in.Regions))
		for c := range in.Demand {
			for r := range before[c] {
				w.moved += math.Max(0, after[c][r]-before[c][r]) * in.Demand[c].Rate / 1e5
				load[r] += after[c][r] * in.Demand[c].Rate
			}
		}
		for r := range load {
			if m := in.Regions[r].Models; len(m) > 0 {
				w.beyond += math.Max(0, load[r]-m[0].Rate) / 1e5
			}
		}
		if in.Prev = res.Plan; res.Publish {
			w.published++
		} else {
			w.over += res.PrevCost/res.Cost - 1
		}
	}
	n := float64(epochs)
	return wandering{w.published / n, w.moved / n, w.over / n, w.beyond / n}
}

// split is where each cell's clients go under a plan, by region.
func split(in *Input, plan *Plan) [][]float64 {
	at := *in
	at.Prev = plan
	p := newProblem(&at)
	p.look()
	out := make([][]float64, len(p.units))
	for i := range p.units {
		out[i] = p.units[i].was
	}
	return out
}
