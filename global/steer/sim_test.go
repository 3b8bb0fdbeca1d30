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

// dnsSimulation is the setup of the reference's stability table: resolvers that cache an answer for one TTL, with
// different phases, and a controller that gets demand reports late. Times in seconds, rates in tokens/s.
type dnsSimulation struct {
	ttl, delay    int
	heavy         bool // demand by resolver falls as 1/n (Zipf) instead of being equal
	reportedHeavy int  // how many of the heaviest networks gateways report
	in            *steer.PlanInput
	returns       steer.ReturnRamps
	guard         steer.RegionHealthGuard
	keys          []uint64
	shares        []float64 // of the demand, by resolver
	assigned      []int     // region that each resolver's clients are sent to
	nextQuery     []int     // when each resolves again
	table         *steer.Table
	plans         int
	pastDemand    []float64 // demand, second by second
}

const (
	capacityA = 10000.0
	capacityB = 50000.0
)

func newDNSSimulation(ttl, delay int, heavy bool) *dnsSimulation {
	const resolvers = 3000
	rng := rand.New(rand.NewPCG(3, 3))
	w := &dnsSimulation{ttl: ttl, delay: delay, heavy: heavy, in: &steer.PlanInput{Spec: oneService(2), SpecVersion: 1}}
	w.in.Spec.Steering.Interval = spec.Duration(time.Second)
	w.in.Regions = []steer.RegionState{
		{Models: []steer.ModelCapacity{{Name: testModel, Rate: capacityA, Ready: 10, Total: 10}}},
		{Models: []steer.ModelCapacity{{Name: testModel, Rate: capacityB, Ready: 50, Total: 50}}},
	}
	w.in.Cells = []steer.Cell{{Name: "here", RTT: []float32{0.010, 0.100}}}
	sum := 0.0
	for i := range resolvers {
		v := 1.0
		if heavy {
			v = 1 / float64(i+1)
		}
		w.shares, w.keys = append(w.shares, v), append(w.keys, rng.Uint64())
		w.nextQuery, w.assigned = append(w.nextQuery, rng.IntN(ttl)), append(w.assigned, 0)
		sum += v
	}
	for i := range w.shares {
		w.shares[i] /= sum
	}
	return w
}

// advanceSecond lets the planner plan from the late reports, and the resolvers with an expired answer resolve again.
func (w *dnsSimulation) advanceSecond(t int, demand float64) (use [2]float64) {
	w.pastDemand = append(w.pastDemand, demand)
	now := time.Unix(int64(t), 0)
	heard := w.pastDemand[max(0, t-w.delay)]
	w.in.Demand = []steer.CellDemand{{Service: w.in.Spec.Services[0].Name, Model: testModel, Cell: "here", Rate: heard}}
	w.in.HeavyHitters = nil
	for i := range w.reportedHeavy {
		w.in.HeavyHitters = append(w.in.HeavyHitters, steer.HeavyHitter{Service: w.in.Spec.Services[0].Name, Cell: "here", Network: capacity.NetworkNumber(networkAt(i)), Rate: heard * w.shares[i]})
	}
	w.guard.MarkUnhealthy(w.in, now)
	w.returns.MarkRamps(w.in, now)
	if res := steer.SolvePlan(w.in); res.Publish {
		w.in.Prev = res.Plan
		w.plans++
	}
	w.table = steer.CompileTable(w.in.Spec, inputGeography(w.in), w.in.Prev)
	drained, lost := outageSets(w.in)
	for i := range w.keys {
		if w.nextQuery[i] <= t {
			w.assigned[i] = w.table.PickRegion(&steer.PickQuery{Cell: 0, Key: w.keys[i], Drained: drained, Unavailable: lost}).Region
			w.nextQuery[i] = t + w.ttl
		}
		use[w.assigned[i]] += w.shares[i] * demand
	}
	use[0] /= capacityA
	use[1] /= capacityB
	return use
}

// stepOutcome holds the figures of the reference's table for one step.
type stepOutcome struct{ over, peak, mean, deviation float64 }

func (o stepOutcome) String() string {
	return fmt.Sprintf("%3.0f s over capacity, peak %.2f, settled at %.2f, deviation %.3f", o.over, o.peak, o.mean, o.deviation)
}

// runDemandStep raises demand from 0.7 to 1.3 times the near region's capacity and measures for ten minutes.
func (w *dnsSimulation) runDemandStep() (o stepOutcome) {
	var sum, squares, n float64
	for t := range 660 {
		demand := 0.7 * capacityA
		if t >= 60 {
			demand = 1.3 * capacityA
		}
		u := w.advanceSecond(t, demand)[0]
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

// TestDemandStepSettles is the experiment of the reference's table. There, feed-forward on offered demand was over
// capacity for 35 s and 22 s and settled at .84 with no deviation; shedding in proportion to utilization took 300 s
// and kept oscillating by .36 and .53.
func TestDemandStepSettles(t *testing.T) {
	for _, c := range []struct {
		ttl, delay int
		heavy      bool
		over       float64 // seconds, at most
	}{{30, 15, false, 50}, {10, 15, false, 35}, {30, 2, false, 40}, {10, 2, false, 20}, {30, 15, true, 60}} {
		w := newDNSSimulation(c.ttl, c.delay, c.heavy)
		o := w.runDemandStep()
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

// TestDemandStepOfPinnedResolversSettles is the reference's column of unequal resolvers, with a mean of .95 instead
// of .85 there, and .91 with a slow trim. With the heavy ones pinned it meets the target.
func TestDemandStepOfPinnedResolversSettles(t *testing.T) {
	worst := [2]float64{}
	for shift := range 8 {
		for i, reported := range []int{0, 64} {
			w := newDNSSimulation(30, 15, true)
			w.reportedHeavy = reported
			for n := range w.keys {
				w.keys[n] = steer.NetworkKey(networkAt(n))
			}
			w.in.Spec.Services[0].Name = fmt.Sprintf("s%d.", shift) // another hash seed
			o := w.runDemandStep()
			worst[i] = math.Max(worst[i], math.Abs(o.mean-0.85))
			if reported > 0 && (o.over > 60 || o.deviation > 0.005 || w.plans > 14) {
				t.Errorf("%s, %d plans", o, w.plans)
			}
		}
	}
	t.Logf("off the target by up to %.3f blind, %.3f pinned", worst[0], worst[1])
	if worst[1] > 0.05 || worst[0] < worst[1] {
		t.Errorf("off the target by up to %.3f blind, %.3f pinned", worst[0], worst[1])
	}
}

// TestRegionReturnsByRamp makes the near region unavailable, then available, and checks the growth of its load.
func TestRegionReturnsByRamp(t *testing.T) {
	w := newDNSSimulation(5, 1, false)
	ramp := spec.Duration(40 * time.Second)
	w.in.Spec.Steering.Ramp = &ramp
	var at [200]float64
	for s := range at {
		w.in.Regions[0].Dead = s >= 50 && s < 80
		at[s] = w.advanceSecond(s, 0.8*capacityA)[0]
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

// TestSlewLimitsTheGainOfARegion: a small region takes over the demand of a full one.
func TestSlewLimitsTheGainOfARegion(t *testing.T) {
	in := newYorkInput()
	in.Spec.Steering.Slew, in.Spec.Steering.MaxStep, in.Spec.Steering.Interval = 0.02, 1, spec.Duration(2*time.Second)
	in.Prev = steer.SolvePlan(in).Plan
	in.Demand[1].Rate = 2000 // New York doubles, and its region is full
	before := plannedLoads(in, in.Prev)[1]
	for range 3 {
		res := steer.SolvePlan(in)
		after := plannedLoads(in, res.Plan)[1]
		if gain := after - before; !res.Publish || gain < 1 || gain > 0.02*2*5000+20 {
			t.Fatalf("a plan adds %.0f tokens/s to a region of 5000, want at most 0.02 of it per second, 200: %s", after-before, res.Reason)
		}
		in.Prev, before = res.Plan, after
	}
}

// TestMinShiftSkipsSmallChanges moves the optimum by less than the least shift.
func TestMinShiftSkipsSmallChanges(t *testing.T) {
	in := newYorkInput()
	in.Spec.Steering.DeadBand = 1e-9
	in.Demand[1].Rate = 1200 // split: 1000 stay
	in.Prev = steer.SolvePlan(in).Plan
	in.Demand[1].Rate = 1212
	if res := steer.SolvePlan(in); res.Publish {
		t.Errorf("a shift below one part in fifty is published: %s", res.Reason)
	}
	in.Demand[1].Rate = 1400
	if res := steer.SolvePlan(in); !res.Publish {
		t.Error("a shift of a tenth is not published")
	}
}

// TestSteadyDemandPublishesNothing: after a crowded input has settled, nothing changes.
func TestSteadyDemandPublishesNothing(t *testing.T) {
	in := crowdedInput(100, 3)
	for range 40 {
		res := steer.SolvePlan(in)
		if in.Prev != nil && !res.Publish {
			break
		}
		in.Prev = res.Plan
	}
	for range 20 {
		if res := steer.SolvePlan(in); res.Publish || res.Plan != in.Prev {
			t.Fatalf("steady demand publishes a plan: %s, %v after %v", res.Reason, res.Cost, res.PrevCost)
		}
	}
}
