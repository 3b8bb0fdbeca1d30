package steer_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// dnsWorld is the set-up of the reference's stability table: resolvers that keep an answer for one TTL, from phases of
// their own, and a controller that hears of demand late. Everything is in seconds and tokens/s.
type dnsWorld struct {
	ttl, delay int
	heavy      bool // demand by resolver falls as 1/n (Zipf) instead of being equal
	told       int  // how many of the heaviest gateways report
	in         *steer.Input
	returns    steer.Returns
	guard      steer.Guard
	keys       []uint64
	part       []float64 // of the demand, by resolver
	has        []int     // region that each resolver's clients are sent to
	next       []int     // when each asks again
	table      *steer.Table
	plans      int
	past       []float64 // demand, second by second
}

const (
	capacityA = 10000.0
	capacityB = 50000.0
)

func newDNSWorld(ttl, delay int, heavy bool) *dnsWorld {
	const resolvers = 3000
	rng := rand.New(rand.NewPCG(3, 3))
	w := &dnsWorld{ttl: ttl, delay: delay, heavy: heavy, in: &steer.Input{Spec: oneService(2), SpecVersion: 1}}
	w.in.Spec.Steering.Interval = spec.Duration(time.Second)
	w.in.Regions = []steer.Region{
		{Models: []steer.Model{{Name: model, Rate: capacityA, Ready: 10, Total: 10}}},
		{Models: []steer.Model{{Name: model, Rate: capacityB, Ready: 50, Total: 50}}},
	}
	w.in.Cells = []steer.Cell{{Name: "here", RTT: []float32{0.010, 0.100}}}
	sum := 0.0
	for i := range resolvers {
		v := 1.0
		if heavy {
			v = 1 / float64(i+1)
		}
		w.part, w.keys = append(w.part, v), append(w.keys, rng.Uint64())
		w.next, w.has = append(w.next, rng.IntN(ttl)), append(w.has, 0)
		sum += v
	}
	for i := range w.part {
		w.part[i] /= sum
	}
	return w
}

// second lets the planner plan on what it hears, and the resolvers ask whose answer has run out.
func (w *dnsWorld) second(t int, demand float64) (use [2]float64) {
	w.past = append(w.past, demand)
	now := time.Unix(int64(t), 0)
	heard := w.past[max(0, t-w.delay)]
	w.in.Demand = []steer.Demand{{Service: w.in.Spec.Services[0].Name, Model: model, Cell: "here", Rate: heard}}
	w.in.Heavy = nil
	for i := range w.told {
		w.in.Heavy = append(w.in.Heavy, steer.Heavy{Service: w.in.Spec.Services[0].Name, Cell: "here", Network: capacity.NetworkNumber(networkAt(i)), Rate: heard * w.part[i]})
	}
	w.guard.Mark(w.in, now)
	w.returns.Mark(w.in, now)
	if res := steer.Solve(w.in); res.Publish {
		w.in.Prev = res.Plan
		w.plans++
	}
	w.table = steer.Compile(w.in.Spec, geography(w.in), w.in.Prev)
	drained, lost := masks(w.in)
	for i := range w.keys {
		if w.next[i] <= t {
			w.has[i] = w.table.Pick(&steer.Query{Cell: 0, Key: w.keys[i], Drained: drained, Lost: lost}).Region
			w.next[i] = t + w.ttl
		}
		use[w.has[i]] += w.part[i] * demand
	}
	use[0] /= capacityA
	use[1] /= capacityB
	return use
}

// outcome is what the reference's table shows of a step.
type outcome struct{ over, peak, mean, deviation float64 }

func (o outcome) String() string {
	return fmt.Sprintf("%3.0f s over capacity, peak %.2f, settled at %.2f, deviation %.3f", o.over, o.peak, o.mean, o.deviation)
}

// step raises demand from 0.7 to 1.3 times the near region's capacity and watches for ten minutes.
func (w *dnsWorld) step() (o outcome) {
	var sum, squares, n float64
	for t := range 660 {
		demand := 0.7 * capacityA
		if t >= 60 {
			demand = 1.3 * capacityA
		}
		u := w.second(t, demand)[0]
		if t < 60 {
			continue
		}
		if o.peak = math.Max(o.peak, u); u > 1 {
			o.over++
		}
		if t >= 360 {
			sum, squares, n = sum+u, squares+u*u, n+1
		}
	}
	o.mean = sum / n
	o.deviation = math.Sqrt(math.Max(0, squares/n-o.mean*o.mean))
	return o
}

// TestStepOfDemand is the experiment of the reference's table. There, feed-forward on offered demand was over capacity
// for 35 s and 22 s and settled at .84 with no deviation; shedding in proportion to utilisation took 300 s and went on
// swinging by .36 and .53.
func TestStepOfDemand(t *testing.T) {
	for _, c := range []struct {
		ttl, delay int
		heavy      bool
		over       float64 // seconds, at most
	}{{30, 15, false, 50}, {10, 15, false, 35}, {30, 2, false, 40}, {10, 2, false, 20}, {30, 15, true, 60}} {
		w := newDNSWorld(c.ttl, c.delay, c.heavy)
		o := w.step()
		t.Logf("TTL %d, delay %d, heavy resolvers %v: %s, %d plans", c.ttl, c.delay, c.heavy, o, w.plans)
		if o.over > c.over || o.deviation > 0.005 || o.peak > 1.31 {
			t.Errorf("TTL %d, delay %d: %s", c.ttl, c.delay, o)
		}
		if !c.heavy && (o.mean > 0.86 || o.mean < 0.78) {
			t.Errorf("TTL %d, delay %d: settled at %.2f of capacity, want what may be filled, 0.85", c.ttl, c.delay, o.mean)
		}
		if w.plans > 12 {
			t.Errorf("a step takes %d plans", w.plans)
		}
	}
}

// TestStepOfDemandOfKnownResolvers is the reference's column of unequal resolvers, whose mean there was .95 instead of .85,
// and .91 with a slow trim: once the heavy ones are pinned it is on target, whoever they are.
func TestStepOfDemandOfKnownResolvers(t *testing.T) {
	worst := [2]float64{}
	for shift := range 8 {
		for i, told := range []int{0, 64} {
			w := newDNSWorld(30, 15, true)
			w.told = told
			for n := range w.keys {
				w.keys[n] = steer.Key(networkAt(n))
			}
			w.in.Spec.Services[0].Name = fmt.Sprintf("s%d.", shift) // another seed of hashes
			o := w.step()
			worst[i] = math.Max(worst[i], math.Abs(o.mean-0.85))
			if told > 0 && (o.over > 60 || o.deviation > 0.005 || w.plans > 14) {
				t.Errorf("%s, %d plans", o, w.plans)
			}
		}
	}
	t.Logf("off the target by up to %.3f blind, %.3f pinned", worst[0], worst[1])
	if worst[1] > 0.05 || worst[0] < worst[1] {
		t.Errorf("off the target by up to %.3f blind, %.3f pinned", worst[0], worst[1])
	}
}

// TestARegionReturnsByItsRamp loses the near region, brings it back, and watches its load grow.
func TestARegionReturnsByItsRamp(t *testing.T) {
	w := newDNSWorld(5, 1, false)
	ramp := spec.Duration(40 * time.Second)
	w.in.Spec.Steering.Ramp = &ramp
	var at [200]float64
	for s := range at {
		w.in.Regions[0].Lost = s >= 50 && s < 80
		at[s] = w.second(s, 0.8*capacityA)[0]
	}
	t.Logf("before %.2f, lost %.2f, 5 s after its return %.2f, 15 s %.2f, 25 s %.2f, 60 s %.2f", at[49], at[70], at[85], at[95], at[105], at[140])
	if at[49] < 0.75 || at[70] > 0 {
		t.Fatal("the world does not work as meant")
	}
	for s, most := range map[int]float64{85: 0.25, 90: 0.40, 95: 0.5, 100: 0.65} {
		if at[s] > most {
			t.Errorf("%d s after its return the region has %.2f of its capacity, want at most %.2f", s-80, at[s], most)
		}
	}
	if at[140] < 0.75 {
		t.Errorf("a minute after its return the region has %.2f", at[140])
	}
	for s := 81; s < 200; s++ {
		if at[s] < at[s-1]-0.02 {
			t.Errorf("second %d: its load falls from %.2f to %.2f on the way back", s, at[s-1], at[s])
		}
	}
}

// TestSlewHoldsARegionBack lets the demand of a full region be taken over by a small one.
func TestSlewHoldsARegionBack(t *testing.T) {
	in := newYork()
	in.Spec.Steering.Slew, in.Spec.Steering.MaxStep, in.Spec.Steering.Interval = 0.02, 1, spec.Duration(2*time.Second)
	in.Prev = steer.Solve(in).Plan
	in.Demand[1].Rate = 2000 // New York doubles, and its region is full
	before := loads(in, in.Prev)[1]
	for range 3 {
		res := steer.Solve(in)
		after := loads(in, res.Plan)[1]
		if gain := after - before; !res.Publish || gain < 1 || gain > 0.02*2*5000+20 {
			t.Fatalf("a plan adds %.0f tokens/s to a region of 5000, want at most 0.02 of it per second, 200: %s", after-before, res.Reason)
		}
		in.Prev, before = res.Plan, after
	}
}

// TestMinShiftLeavesSmallChangesOut moves the optimum by less than what is worth a row.
func TestMinShiftLeavesSmallChangesOut(t *testing.T) {
	in := newYork()
	in.Spec.Steering.DeadBand = 1e-9
	in.Demand[1].Rate = 1200 // split: 1000 stay
	in.Prev = steer.Solve(in).Plan
	in.Demand[1].Rate = 1212
	if res := steer.Solve(in); res.Publish {
		t.Errorf("a shift below one part in fifty is published: %s", res.Reason)
	}
	in.Demand[1].Rate = 1400
	if res := steer.Solve(in); !res.Publish {
		t.Error("a shift of a tenth is not published")
	}
}

// TestSteadyDemandPublishesNothing settles a crowded world and then changes nothing.
func TestSteadyDemandPublishesNothing(t *testing.T) {
	in := crowded(100, 3)
	for range 40 {
		res := steer.Solve(in)
		if in.Prev != nil && !res.Publish {
			break
		}
		in.Prev = res.Plan
	}
	for range 20 {
		if res := steer.Solve(in); res.Publish || res.Plan != in.Prev {
			t.Fatalf("steady demand publishes a plan: %s, %v after %v", res.Reason, res.Cost, res.PrevCost)
		}
	}
}
