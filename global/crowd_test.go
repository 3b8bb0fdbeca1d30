package global

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/global/steer"
)

// resolvers are the networks of one cell as its gateway counts them: each asks by chance, and is counted over a window.
type resolvers struct {
	rng   *rand.Rand
	each  float64 // requests/s of each
	rates []float64
}

const crowdTokens = 2000 // of a request

func newResolvers(n int, each float64, seed uint64) *resolvers {
	r := &resolvers{rng: rand.New(rand.NewPCG(seed, 1)), each: each, rates: make([]float64, n)}
	for i := range r.rates {
		r.rates[i] = each
	}
	return r
}

// next is what is told after another second; those that are light just then are left out, as gateways do.
func (r *resolvers) next() (out []steer.Heavy) {
	for i := range r.rates {
		n := 0.0
		for at := r.rng.ExpFloat64() / r.each; at < 1; at += r.rng.ExpFloat64() / r.each {
			n++
		}
		r.rates[i] += (1 - math.Exp(-1/networkWindow.Seconds())) * (n - r.rates[i])
		if r.rates[i] > 0.4*r.each {
			out = append(out, steer.Heavy{Service: service, Cell: "c", Network: uint64(i + 1), Rate: r.rates[i] * crowdTokens})
		}
	}
	return out
}

// TestSteadyNetworksPublishNothing: a cell of forty resolvers whose region is full for a fifth of them. Its demand is
// steady to the token, and each resolver trembles as chance has it.
func TestSteadyNetworksPublishNothing(t *testing.T) {
	v := stillView(t)
	const n, each, minutes = 40, 1.0 / 16, 10
	model := v.spec.Models[0].Name
	demand := n * each * crowdTokens
	count := func(calm bool) (plans int) {
		in := &steer.Input{Spec: v.spec, SpecVersion: 1, Cells: []steer.Cell{{Name: "c", RTT: []float32{0.002, 0.09, 0.16}}}}
		for _, rate := range []float64{0.85, 1.6, 1.6} {
			in.Regions = append(in.Regions, steer.Region{Models: []steer.Model{{Name: model, Rate: rate * demand, Ready: 2, Total: 2}}})
		}
		in.Demand = []steer.Demand{{Service: service, Model: model, Cell: "c", Region: v.spec.Regions[0].Name, Rate: demand}}
		r, now := newResolvers(n, each, 7), time.Now()
		var c crowd
		for s := range 60 * minutes {
			in.Heavy = r.next()
			if now = now.Add(time.Second); calm {
				in.Heavy = c.calm(in.Heavy, map[cellKey]float64{{service, "c"}: crowdTokens}, now)
			}
			res := steer.Solve(in)
			if in.Prev = res.Plan; res.Publish && s >= 60 {
				plans++
			}
		}
		return plans
	}
	told, calmed := count(false), count(true)
	t.Logf("plans in %d minutes: %d as told, %d by what lasts", minutes-1, told, calmed)
	if told < 20 || calmed*8 > told {
		t.Errorf("%d plans as told, %d by what lasts", told, calmed)
	}
}

// TestCrowd: whatever is told, together a cell's networks ask for what is told of them, in order, and those that are gone
// are forgotten.
func TestCrowd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c crowd
		now := time.Now()
		tokens := map[cellKey]float64{{"s", "c0"}: rapid.Float64Range(0, 5000).Draw(t, "tokens")}
		for range rapid.IntRange(1, 20).Draw(t, "readings") {
			now = now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second)
			var told []steer.Heavy
			sums := map[string]float64{}
			for range rapid.IntRange(1, 8).Draw(t, "networks") {
				h := steer.Heavy{
					Service: "s", Cell: fmt.Sprintf("c%d", rapid.IntRange(0, 1).Draw(t, "cell")),
					Network: rapid.Uint64Range(1, 5).Draw(t, "network"), Rate: rapid.Float64Range(1, 1e6).Draw(t, "rate"),
				}
				told = append(told, h)
				sums[h.Cell] += h.Rate
			}
			was := networkKey{}
			for _, h := range c.calm(told, tokens, now) {
				k := networkKey{h.Service, h.Cell, h.Network}
				if k.cell < was.cell || k.cell == was.cell && k.network <= was.network || h.Rate < 0 || math.IsNaN(h.Rate) {
					t.Fatalf("%v after %v", h, was)
				}
				was = k
				sums[h.Cell] -= h.Rate
			}
			for cell, off := range sums {
				if math.Abs(off) > 1e-3 {
					t.Fatalf("%s asks for %v less than is told", cell, off)
				}
			}
		}
		one := []steer.Heavy{{Service: "s", Cell: "c", Network: 9, Rate: 1}}
		if got := c.calm(one, tokens, now.Add(networkStays)); len(got) != 1 || len(c.rates) != 1 {
			t.Fatalf("those that are gone are kept: %v", got)
		}
		if got := c.calm(nil, tokens, now); got != nil || len(c.rates)+len(c.told) != 0 {
			t.Fatalf("nobody is told: %v", got)
		}
	})
}
