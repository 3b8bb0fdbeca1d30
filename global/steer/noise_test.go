package steer

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestNoiseOnDemand is the reference's dead-band experiment: demand wanders by 16 % and a plan is published only when it
// gains more than the dead band. There, 5 % published in 30 % of epochs, moved 1.15 % of demand and cost 2.2 %; 10 % in
// 15 %, 0.76 % and 4.1 %.
func TestNoiseOnDemand(t *testing.T) {
	for _, c := range []struct{ band, most float64 }{{0.05, 0.65}, {0.10, 0.4}} {
		published, moved, over := wander(c.band, 50)
		t.Logf("dead band %.2f: published in %.2f of epochs, %.4f of demand moved in each, cost %+.1f%% of the best", c.band, published, moved, over*100)
		if published > c.most || over > 0.09 {
			t.Errorf("dead band %.2f: published in %.2f of epochs at %+.1f%%", c.band, published, over*100)
		}
	}
}

// wander returns the part of epochs that publish, the part of demand that moves in each, and the excess of cost over the
// best, on the mean.
func wander(band float64, epochs int) (published, moved, over float64) {
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
		for c := range in.Demand {
			for r := range before[c] {
				moved += math.Max(0, after[c][r]-before[c][r]) * in.Demand[c].Rate / 1e5
			}
		}
		if in.Prev = res.Plan; res.Publish {
			published++
		} else {
			over += res.PrevCost/res.Cost - 1
		}
	}
	n := float64(epochs)
	return published / n, moved / n, over / n
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
