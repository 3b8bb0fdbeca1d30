package planinput

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/global/steer"
)

// resolverPopulation are the networks of one cell as its gateway counts them: each sends queries at random times, and
// is counted over a window.
type resolverPopulation struct {
	rng             *rand.Rand
	ratePerResolver float64 // requests/s of each
	rates           []float64
}

const tokensPerRequest = 2000 // size of a request

func newResolverPopulation(n int, each float64, seed uint64) *resolverPopulation {
	r := &resolverPopulation{rng: rand.New(rand.NewPCG(seed, 1)), ratePerResolver: each, rates: make([]float64, n)}
	for i := range r.rates {
		r.rates[i] = each
	}
	return r
}

// reportHeavyHitters returns the report of the next second. Networks that are light in that second are left out, as
// gateways do.
func (r *resolverPopulation) reportHeavyHitters() (out []steer.HeavyHitter) {
	for i := range r.rates {
		n := 0.0
		for at := r.rng.ExpFloat64() / r.ratePerResolver; at < 1; at += r.rng.ExpFloat64() / r.ratePerResolver {
			n++
		}
		r.rates[i] += (1 - math.Exp(-1/heavyHitterRateWindow.Seconds())) * (n - r.rates[i])
		if r.rates[i] > 0.4*r.ratePerResolver {
			out = append(out, steer.HeavyHitter{Service: testService, Cell: "c", Network: uint64(i + 1), Rate: r.rates[i] * tokensPerRequest})
		}
	}
	return out
}

// TestSteadyHeavyHittersPublishNoPlan: a cell of forty resolvers whose region is full for a fifth of them. Its total
// demand is constant, and each resolver's rate fluctuates at random.
func TestSteadyHeavyHittersPublishNoPlan(t *testing.T) {
	v := newTestSnapshot(t)
	const n, each, minutes = 40, 1.0 / 16, 10
	model := v.Spec.Models[0].Name
	demand := n * each * tokensPerRequest
	count := func(smooth bool) (plans int) {
		in := &steer.PlanInput{Spec: v.Spec, SpecVersion: 1, Cells: []steer.Cell{{Name: "c", RTT: []float32{0.002, 0.09, 0.16}}}}
		for _, rate := range []float64{0.85, 1.6, 1.6} {
			in.Regions = append(in.Regions, steer.RegionState{Models: []steer.ModelCapacity{{Name: model, Rate: rate * demand, Ready: 2, Total: 2}}})
		}
		in.Demand = []steer.CellDemand{{Service: testService, Model: model, Cell: "c", Region: v.Spec.Regions[0].Name, Rate: demand}}
		r, now := newResolverPopulation(n, each, 7), time.Now()
		var c heavyHitters
		for s := range 60 * minutes {
			in.HeavyHitters = r.reportHeavyHitters()
			if now = now.Add(time.Second); smooth {
				in.HeavyHitters = c.smoothRates(in.HeavyHitters, map[snapshot.CellKey]float64{{Service: testService, Cell: "c"}: tokensPerRequest}, now)
			}
			res := steer.SolvePlan(in)
			if in.Prev = res.Plan; res.Publish && s >= 60 {
				plans++
			}
		}
		return plans
	}
	raw, smoothed := count(false), count(true)
	t.Logf("plans in %d minutes: %d from raw rates, %d from smoothed rates", minutes-1, raw, smoothed)
	if raw < 20 || smoothed*8 > raw {
		t.Errorf("%d plans from raw rates, %d from smoothed rates", raw, smoothed)
	}
}

// TestHeavyHitterRatesKeepTheirSum: for any reports, the smoothed rates of a cell's networks add up to the reported
// sum, in order, and networks that are gone are dropped.
func TestHeavyHitterRatesKeepTheirSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c heavyHitters
		now := time.Now()
		tokens := map[snapshot.CellKey]float64{{Service: "s", Cell: "c0"}: rapid.Float64Range(0, 5000).Draw(t, "tokens")}
		for range rapid.IntRange(1, 20).Draw(t, "readings") {
			now = now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second)
			var reported []steer.HeavyHitter
			sums := map[string]float64{}
			for range rapid.IntRange(1, 8).Draw(t, "networks") {
				h := steer.HeavyHitter{
					Service: "s", Cell: fmt.Sprintf("c%d", rapid.IntRange(0, 1).Draw(t, "cell")),
					Network: rapid.Uint64Range(1, 5).Draw(t, "network"), Rate: rapid.Float64Range(1, 1e6).Draw(t, "rate"),
				}
				reported = append(reported, h)
				sums[h.Cell] += h.Rate
			}
			was := networkKey{}
			for _, h := range c.smoothRates(reported, tokens, now) {
				k := networkKey{h.Service, h.Cell, h.Network}
				if k.cell < was.cell || k.cell == was.cell && k.network <= was.network || h.Rate < 0 || math.IsNaN(h.Rate) {
					t.Fatalf("%v after %v", h, was)
				}
				was = k
				sums[h.Cell] -= h.Rate
			}
			for cell, off := range sums {
				if math.Abs(off) > 1e-3 {
					t.Fatalf("%s: smoothed rates are %v below the reported sum", cell, off)
				}
			}
		}
		one := []steer.HeavyHitter{{Service: "s", Cell: "c", Network: 9, Rate: 1}}
		if got := c.smoothRates(one, tokens, now.Add(heavyHitterForgetTime)); len(got) != 1 || len(c.rates) != 1 {
			t.Fatalf("those that are gone are kept: %v", got)
		}
		if got := c.smoothRates(nil, tokens, now); got != nil || len(c.rates)+len(c.lastReported) != 0 {
			t.Fatalf("no network is reported, got %v", got)
		}
	})
}
