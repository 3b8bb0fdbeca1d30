package steer_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/spec"
)

// reportingFleet is a small fleet whose gateways report the demand of its clients: three regions with a cell at 5 ms
// each, clients that follow a plan within a TTL, and a leader that plans every second from bounded reports.
type reportingFleet struct {
	now      time.Time
	spec     *spec.Spec
	bounds   steer.ReportBounds
	prev     *steer.Plan
	arrivals [][]float64 // by cell and region: the part of the cell's clients that arrives there
	demand   []float64   // by cell, tokens/s
	models   []steer.ModelCapacity
	excess   []steer.Excess
	counted  *steer.PlanInput
	drained  steer.RegionSet
}

const fleetRate = 30_000.0

func newReportingFleet() *reportingFleet {
	f := &reportingFleet{now: time.Unix(1_000_000, 0), spec: oneService(3), demand: []float64{5000, 5000, 5000}}
	f.spec.Steering.Interval = spec.Duration(time.Second)
	f.spec.Services[0].TTL = spec.Duration(30 * time.Second)
	for r := range 3 {
		f.models = append(f.models, modelCapacity(fleetRate, 10))
		f.arrivals = append(f.arrivals, make([]float64, 3))
		f.arrivals[r][r] = 1
	}
	return f
}

func modelCapacity(rate, n float64) steer.ModelCapacity {
	return steer.ModelCapacity{Name: testModel, Rate: rate, Ready: n, Total: n, Hardware: []steer.HardwareCapacity{{Name: "h100", Ready: n, Rate: rate}}}
}

// honestInput is what honest gateways report now.
func (f *reportingFleet) honestInput() *steer.PlanInput {
	in := &steer.PlanInput{Spec: f.spec, SpecVersion: 1, Prev: f.prev}
	for r := range 3 {
		m := f.models[r]
		m.Hardware = append([]steer.HardwareCapacity(nil), m.Hardware...)
		in.Regions = append(in.Regions, steer.RegionState{Models: []steer.ModelCapacity{m}})
		cell := steer.Cell{Name: cellName(r)}
		for k := range 3 {
			rtt := float32(0.005)
			if k != r {
				rtt = 0.1 + 0.05*float32((k+r)%3)
			}
			cell.RTT = append(cell.RTT, rtt)
		}
		in.Cells = append(in.Cells, cell)
	}
	for c := range f.arrivals {
		for r, part := range f.arrivals[c] {
			if part > 0 {
				in.Demand = append(in.Demand, steer.CellDemand{Service: testService, Model: testModel, Cell: cellName(c), Region: f.spec.Regions[r].Name, Rate: part * f.demand[c]})
			}
		}
	}
	return in
}

// addDemand adds to a region's reported demand of a cell.
func addDemand(in *steer.PlanInput, region, cell int, rate float64) {
	in.Demand = append(in.Demand, steer.CellDemand{Service: testService, Model: testModel, Cell: cellName(cell), Region: in.Spec.Regions[region].Name, Rate: rate})
}

// runSeconds simulates seconds. lie modifies the honest reports.
func (f *reportingFleet) runSeconds(seconds int, lie func(*steer.PlanInput)) {
	for range seconds {
		f.now = f.now.Add(time.Second)
		in := f.honestInput()
		if lie != nil {
			lie(in)
		}
		f.excess = f.bounds.BoundInput(in, f.now)
		f.counted = in
		f.prev = steer.SolvePlan(in).Plan
		f.drained = steer.RegionSet{}
		for r := range in.Regions {
			if in.Regions[r].Drained {
				f.drained.Add(r)
			}
		}
		for c := range f.arrivals {
			for r, part := range f.cellShares(c) {
				f.arrivals[c][r] += (part - f.arrivals[c][r]) / 30
			}
		}
	}
}

// cellShares is the shares of a cell under the plan in force.
func (f *reportingFleet) cellShares(c int) []float64 {
	out := make([]float64, 3)
	for _, row := range f.prev.Services[0].Rows {
		if row.Cell == cellName(c) {
			for _, s := range row.Shares {
				out[s.Region] = float64(s.Weight) / steer.WeightSum
			}
			return out
		}
	}
	in := f.honestInput()
	table := steer.CompileTable(f.spec, inputGeography(in), f.prev)
	out[table.PickRegion(&steer.PickQuery{Cell: int32(c), Drained: f.drained}).Region] = 1
	return out
}

func (f *reportingFleet) countedRate(region, cell int) (sum float64) {
	for _, d := range f.counted.Demand {
		if d.Service == testService && d.Cell == cellName(cell) && d.Region == f.spec.Regions[region].Name {
			sum += d.Rate
		}
	}
	return sum
}

// TestOneRegionCannotAttractTheClientsOfOthers: with any reports of one region, sudden or in small
// steps, the clients of the other regions stay where they are.
func TestOneRegionCannotAttractTheClientsOfOthers(t *testing.T) {
	for _, l := range []struct {
		name             string
		demand, capacity float64
		cells            []int // whose demand it claims
	}{
		{"demand 1e5 here and there, capacity 1e6", 1e5, 1e6, []int{0, 1, 2}},
		{"demand 1e6 in others' cells, capacity 1e7", 1e6, 1e7, []int{0, 1}},
		{"demand 1e7 in others' cells, capacity 1e8", 1e7, 1e8, []int{0, 1}},
		{"demand 1e13 in others' cells, capacity 1e8", 1e13, 1e8, []int{0, 1}},
		{"demand 1e13 in every cell", 1e13, fleetRate, []int{0, 1, 2}},
		{"demand 1e13 in its own cell", 1e13, fleetRate, []int{2}},
		{"demand 1e13 in one cell of another region", 1e13, fleetRate, []int{0}},
		{"capacity 1e8", 0, 1e8, nil},
		{"demand 1e9 in a cell without a place", 1e9, 1e6, []int{77}},
	} {
		for _, grow := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/grow=%v", l.name, grow), func(t *testing.T) {
				f := newReportingFleet()
				f.runSeconds(120, nil)
				step := 0
				lie := func(in *steer.PlanInput) {
					part := 1.0
					if step++; grow {
						part = math.Min(1, math.Pow(1.05, float64(step-300)))
					}
					for _, c := range l.cells {
						addDemand(in, 2, c, l.demand*part)
					}
					rate := math.Max(fleetRate, l.capacity*part)
					in.Regions[2].Models[0] = modelCapacity(rate, rate/3000)
				}
				worst, spread := 1.0, uint16(0)
				for range 60 {
					f.runSeconds(10, lie)
					for c := range 2 {
						worst = math.Min(worst, f.cellShares(c)[c])
					}
					for _, s := range f.prev.Services[0].Spread {
						if s.Region == 2 {
							spread = max(spread, s.Weight)
						}
					}
				}
				if worst < 0.99 {
					t.Errorf("only %.0f %% of a cell's clients stay at home", worst*100)
				}
				// maxRiseFactor times as much as each of the two others: 8 of 10. The mean of an hour rises a little
				// meanwhile.
				if part := float64(spread) / steer.WeightSum; part > 0.92 {
					t.Errorf("%.0f %% of the clients of no known place are sent to it", part*100)
				}
				if len(f.excess) == 0 || f.excess[0].Region != "r2" || !f.excess[0].Implausible {
					t.Errorf("no excess is returned: %+v", f.excess)
				}
			})
		}
	}
}

// TestDeclaredWorkersBoundCapacity: with max_workers the bound applies from the first report on.
func TestDeclaredWorkersBoundCapacity(t *testing.T) {
	f := newReportingFleet()
	f.spec.Regions[2].MaxWorkers = 12
	for _, c := range []struct{ rate, workers, want float64 }{
		{fleetRate, 10, fleetRate},
		{fleetRate * 1.2, 12, fleetRate * 1.2},
		{1e8, 1e8 / 3000, 12 * 3000},       // too many workers
		{1e8, 12, 12 * 3000 * 10},          // too fast: maxRateOutlier times the others' rate
		{1e8, 1e4, 12 * 3000 * 1e4 / 3000}, // both
	} {
		in := f.honestInput()
		in.Regions[2].Models[0] = modelCapacity(c.rate, c.workers)
		var b steer.ReportBounds
		b.BoundInput(in, f.now)
		if got := in.Regions[2].Models[0].Rate; math.Abs(got-c.want) > 1 {
			t.Errorf("%g workers with %g tokens/s count for %g tokens/s, want %g", c.workers, c.rate, got, c.want)
		}
	}
}

// TestRateOutlierIsBounded: a learned rate that is a thousand times too high, on hardware that other regions have
// too, counts for maxRateOutlier times theirs from the first report on.
func TestRateOutlierIsBounded(t *testing.T) {
	f := newReportingFleet()
	in := f.honestInput()
	in.Regions[1].Models[0] = modelCapacity(fleetRate*1000, 10)
	list := f.bounds.BoundInput(in, f.now)
	if got := in.Regions[1].Models[0].Rate; got != fleetRate*10 {
		t.Errorf("the rate counts for %g tokens/s, want %g", got, fleetRate*10)
	}
	if len(list) != 1 || list[0].Region != "r1" || list[0].Kind != steer.KindCapacity || list[0].Reported != fleetRate*1000 || list[0].Counted != fleetRate*10 {
		t.Errorf("reported %+v", list)
	}
}

// TestHonestGrowthCountsSoon: an honest region's growth counts soon: twice its workers, a restart, a warm pool, and a
// small region that grows to the size of the others.
func TestHonestGrowthCountsSoon(t *testing.T) {
	for _, c := range []struct {
		name   string
		before steer.ModelCapacity
		after  steer.ModelCapacity
		within int // seconds until all of it counts
	}{
		{"twice the workers", modelCapacity(fleetRate, 10), modelCapacity(2*fleetRate, 20), 31},
		{"four times the workers", modelCapacity(fleetRate, 10), modelCapacity(4*fleetRate, 40), 61},
		{"a restart", modelCapacity(0, 0), modelCapacity(fleetRate, 10), 1},
		{"a small region grows to the size of others", modelCapacity(3000, 1), modelCapacity(fleetRate, 10), 1},
		{"one worker more", modelCapacity(3000, 1), modelCapacity(6000, 2), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newReportingFleet()
			f.runSeconds(120, nil)
			f.models[2] = c.before
			f.runSeconds(120, nil)
			f.models[2] = c.after
			for s := 1; ; s++ {
				f.runSeconds(1, nil)
				if f.counted.Regions[2].Models[0].Rate >= c.after.Rate*0.999 {
					return
				}
				if s == c.within {
					t.Fatalf("after %d s only %g of %g tokens/s count", s, f.counted.Regions[2].Models[0].Rate, c.after.Rate)
				}
			}
		})
	}
}

// TestNewRegionCountsAtOnce: a new region counts at once for up to as much as the largest, and then doubles.
func TestNewRegionCountsAtOnce(t *testing.T) {
	f := newReportingFleet()
	f.models[2] = steer.ModelCapacity{Name: testModel}
	f.runSeconds(120, nil)
	f.models[2] = modelCapacity(8*fleetRate, 80)
	f.runSeconds(1, nil)
	if got := f.counted.Regions[2].Models[0].Rate; math.Abs(got-fleetRate) > 1 {
		t.Errorf("at once %g tokens/s count, want %g", got, fleetRate)
	}
	f.runSeconds(95, nil)
	if got := f.counted.Regions[2].Models[0].Rate; got < 8*fleetRate*0.999 {
		t.Errorf("after 95 s %g tokens/s count, want %g", got, 8*fleetRate)
	}
}

// TestFlashCrowdCountsInFull: the demand of a cell grows tenfold within a minute. All of it counts while its clients
// are where the plan sends them, and what exceeds its region goes elsewhere within two minutes.
func TestFlashCrowdCountsInFull(t *testing.T) {
	f := newReportingFleet()
	f.runSeconds(120, nil)
	for s := range 180 {
		f.demand[1] = 5000 * math.Min(10, 1+9*float64(s)/60)
		f.runSeconds(1, nil)
		counted := f.countedRate(0, 1) + f.countedRate(1, 1) + f.countedRate(2, 1)
		if counted < 0.98*f.demand[1] {
			t.Fatalf("after %d s %.0f of %.0f tokens/s count", s, counted, f.demand[1])
		}
		for _, e := range f.excess {
			if e.Implausible {
				t.Fatalf("after %d s an honest fleet is warned of: %+v", s, e)
			}
		}
	}
	if at := f.arrivals[1][1] * f.demand[1]; at > fleetRate {
		t.Errorf("three minutes after it began, %.0f tokens/s still arrive at a region that has %.0f", at, fleetRate)
	}
	for c := range f.arrivals {
		if c != 1 && f.cellShares(c)[c] < 0.99 {
			t.Errorf("cell %d: %v", c, f.cellShares(c))
		}
	}
}

// TestDemandOfADrainedRegionCountsInFull: the demand of a drained region's clients counts in full while they move.
func TestDemandOfADrainedRegionCountsInFull(t *testing.T) {
	f := newReportingFleet()
	f.demand[2] = 20_000
	f.runSeconds(120, nil)
	for s := range 120 {
		f.runSeconds(1, func(in *steer.PlanInput) { in.Regions[2].Drained = true })
		if counted := f.countedRate(0, 2) + f.countedRate(1, 2) + f.countedRate(2, 2); counted < 0.95*f.demand[2] {
			t.Fatalf("%d s after the drain %.0f of %.0f tokens/s count", s, counted, f.demand[2])
		}
	}
}

// TestStrayClientsCountWhereTheyArrive: clients whose resolver is elsewhere arrive at a region that the plan does not
// send them to. They fill that region, and no warning is given.
func TestStrayClientsCountWhereTheyArrive(t *testing.T) {
	f := newReportingFleet()
	f.runSeconds(120, nil)
	f.runSeconds(60, func(in *steer.PlanInput) { addDemand(in, 2, 0, 20_000) })
	if got := f.countedRate(2, 0); got > 0.1*5000+0.05*fleetRate+1 {
		t.Errorf("%.0f tokens/s of the cell are steered", got)
	}
	stay := 0.0
	for _, d := range f.counted.Demand {
		if d.Service == "" && d.Region == "r2" {
			stay += d.Rate
		}
	}
	if got := stay + f.countedRate(2, 0); math.Abs(got-20_000) > 1 {
		t.Errorf("%.0f tokens/s count in the region where they arrive, want 20000", got)
	}
	for _, e := range f.excess {
		if e.Implausible {
			t.Errorf("an honest fleet is warned of: %+v", e)
		}
	}
}

// TestSmallCellsKeepTheirRegion: large demand elsewhere does not spread a cell with small demand.
func TestSmallCellsKeepTheirRegion(t *testing.T) {
	for _, other := range []float64{1e3, 1e6, 1e9, 1e12, 1e15} {
		f := newReportingFleet()
		in := f.honestInput()
		in.Demand[0].Rate, in.Demand[1].Rate, in.Demand[2].Rate = 1, 2, other
		plan := steer.SolvePlan(in).Plan
		f.prev = plan
		for c := range 2 {
			if got := f.cellShares(c)[c]; got < 0.99 {
				t.Errorf("with %g tokens/s elsewhere, %.0f %% of cell %d stay at home", other, got*100, c)
			}
		}
	}
}

// TestHeavyHittersAreBoundedByTheDemandOfTheirCell: networks of a region cannot count for more demand than the
// region's clients.
func TestHeavyHittersAreBoundedByTheDemandOfTheirCell(t *testing.T) {
	f := newReportingFleet()
	f.runSeconds(120, nil)
	in := f.honestInput()
	addDemand(in, 2, 0, 1e9)
	in.HeavyHitters = []steer.HeavyHitter{
		{Service: testService, Cell: cellName(0), Network: 7, Rate: 9e8, Region: "r2"},
		{Service: testService, Cell: cellName(0), Network: 8, Rate: 3000, Region: "r0"},
		{Service: testService, Cell: cellName(1), Network: 9, Rate: 1e9, Region: "r2"},
	}
	f.bounds.BoundInput(in, f.now.Add(time.Second))
	if h := in.HeavyHitters[0].Rate; h > 0.1*5000+0.05*fleetRate {
		t.Errorf("a network in a cell that the region does not see asks for %g tokens/s", h)
	}
	if in.HeavyHitters[1].Rate != 3000 || in.HeavyHitters[2].Rate != 0 {
		t.Errorf("an honest network counts for %g, want 3000; one without demand for %g, want 0", in.HeavyHitters[1].Rate, in.HeavyHitters[2].Rate)
	}
}

// TestBoundedAmountsAreFiniteAndNeverRaised: with any reports, amounts are finite and capacity is never raised.
func TestBoundedAmountsAreFiniteAndNeverRaised(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newReportingFleet()
		f.bounds = steer.ReportBounds{}
		odd := rapid.OneOf(rapid.Float64(), rapid.Just(math.Inf(1)), rapid.Just(math.NaN()), rapid.Just(0.0), rapid.Float64Range(0, 1e6))
		for range rapid.IntRange(1, 5).Draw(t, "rounds") {
			f.now = f.now.Add(time.Duration(rapid.IntRange(-1, 100).Draw(t, "seconds")) * time.Second)
			in := f.honestInput()
			m := &in.Regions[rapid.IntRange(0, 2).Draw(t, "region")].Models[0]
			m.Rate, m.Ready, m.Warm = odd.Draw(t, "rate"), odd.Draw(t, "ready"), odd.Draw(t, "warm")
			m.Hardware[0].Rate, m.Hardware[0].Ready = odd.Draw(t, "h rate"), odd.Draw(t, "h ready")
			addDemand(in, rapid.IntRange(0, 2).Draw(t, "liar"), rapid.IntRange(0, 3).Draw(t, "cell"), odd.Draw(t, "demand"))
			reported := m.Rate
			f.bounds.BoundInput(in, f.now)
			if m.Rate > math.Max(reported, 0) {
				t.Fatalf("%g tokens/s became %g", reported, m.Rate)
			}
			for r := range in.Regions {
				for _, x := range []float64{in.Regions[r].Models[0].Rate, in.Regions[r].Models[0].Ready, in.Regions[r].Models[0].Warm} {
					if !(x >= 0) || math.IsInf(x, 0) {
						t.Fatalf("region %d: %+v", r, in.Regions[r])
					}
				}
			}
			for _, d := range in.Demand {
				if !(d.Rate >= 0) || math.IsInf(d.Rate, 0) {
					t.Fatalf("demand %+v", d)
				}
			}
			f.prev = steer.SolvePlan(in).Plan
		}
	})
}

// TestNoisyHonestDemandIsNotBoundedByTheNextLeader: a cell is divided between two regions, and one region's part of it is
// noisy, as it is with few requests a second. The next leader has followed the reports, and had none for ten minutes
// before it leads. What it receives first is a low sample: all of the demand counts, because the node keeps what it
// observed before. A node that has just started counts everything.
func TestNoisyHonestDemandIsNotBoundedByTheNextLeader(t *testing.T) {
	f := newReportingFleet()
	f.demand[0] = 1.2 * fleetRate
	seconds := 0
	follower, sample := new(steer.ReportBounds), func(in *steer.PlanInput, factor float64) {
		for i := range in.Demand {
			if d := &in.Demand[i]; d.Cell == cellName(0) && d.Region == f.spec.Regions[1].Name {
				d.Rate *= factor
			}
		}
	}
	f.runSeconds(600, func(in *steer.PlanInput) {
		seconds++
		sample(in, 1+0.6*math.Sin(float64(seconds)*2*math.Pi/8))
		follower.ObserveReports(f.copyInput(in), f.now)
	})
	if part := f.cellShares(0)[1]; part < 0.1 || part > 0.4 {
		t.Fatalf("the plan sends %.0f %% of the cell to the second region: the test shows nothing", part*100)
	}
	stale := f.honestInput()
	sample(stale, 0.4)
	for r := range stale.Regions {
		stale.Regions[r].Stale = true
	}
	for range 600 {
		f.now = f.now.Add(time.Second)
		follower.ObserveReports(f.copyInput(stale), f.now)
	}
	for name, bounds := range map[string]*steer.ReportBounds{"a follower leads": follower, "a node starts": new(steer.ReportBounds)} {
		in := f.honestInput()
		sample(in, 0.4)
		if list := bounds.BoundInput(in, f.now.Add(time.Second)); len(list) > 0 {
			t.Errorf("%s: honest demand is not counted in full: %+v", name, list)
		}
	}
}

// TestDemandIsNotBoundedAfterALossDuringAMove: the links are lost while a cell's clients move to other regions. The last
// reports show few of them there. After the loss all have moved, and the cell's own region reports first.
func TestDemandIsNotBoundedAfterALossDuringAMove(t *testing.T) {
	f, follower := newReportingFleet(), new(steer.ReportBounds)
	observe := func(in *steer.PlanInput) { follower.ObserveReports(f.copyInput(in), f.now) }
	f.runSeconds(120, observe)
	f.demand[0] = 1.6 * fleetRate
	f.runSeconds(8, observe)
	if part, arrives := f.cellShares(0)[0], f.arrivals[0][0]; part > 0.7 || arrives < 0.8 {
		t.Fatalf("the plan leaves %.0f %% of the cell in its region, and %.0f %% arrive: the test shows nothing", part*100, arrives*100)
	}
	stale := f.honestInput()
	for r := range stale.Regions {
		stale.Regions[r].Stale = true
	}
	for range 600 {
		f.now = f.now.Add(time.Second)
		follower.ObserveReports(f.copyInput(stale), f.now)
	}
	copy(f.arrivals[0], f.cellShares(0))
	in := f.copyInput(stale)
	in.Regions[0].Stale = false
	for i := range in.Demand {
		if d := &in.Demand[i]; d.Cell == cellName(0) && d.Region == f.spec.Regions[0].Name {
			d.Rate = f.arrivals[0][0] * f.demand[0]
		}
	}
	if list := follower.BoundInput(in, f.now.Add(time.Second)); len(list) > 0 {
		t.Errorf("honest demand is not counted in full: %+v", list)
	}
}

// TestDeadRegionDoesNotHoldParts: a region that is confirmed dead for ten minutes does not keep the parts of others at
// what they were, and with them the bounds of what those may report.
func TestDeadRegionDoesNotHoldParts(t *testing.T) {
	f, follower := newReportingFleet(), new(steer.ReportBounds)
	observe := func(in *steer.PlanInput) {
		addDemand(in, 2, 0, 100)
		follower.ObserveReports(f.copyInput(in), f.now)
	}
	f.runSeconds(120, observe)
	f.demand[0] = 1.6 * fleetRate
	f.runSeconds(8, observe)
	copy(f.arrivals[0], f.cellShares(0))
	in := f.honestInput()
	in.Regions[2].Stale, in.Regions[2].Dead = true, true
	in.Demand = slices.DeleteFunc(in.Demand, func(d steer.CellDemand) bool { return d.Region == f.spec.Regions[2].Name })
	for range 600 {
		f.now = f.now.Add(time.Second)
		follower.ObserveReports(f.copyInput(in), f.now)
	}
	addDemand(in, 0, 0, 4*fleetRate)
	list := follower.BoundInput(in, f.now.Add(time.Second))
	if len(list) != 1 || list[0].Region != f.spec.Regions[0].Name || list[0].Counted > 2.5*fleetRate { // without evidence 3 times a capacity would count
		t.Errorf("a claim of four times a region's capacity is not held to its part of the cell: %+v", list)
	}
}

// TestLiesAreBoundedByTheNextLeader: a node that has followed the reports bounds them from its first plan.
func TestLiesAreBoundedByTheNextLeader(t *testing.T) {
	f, follower := newReportingFleet(), new(steer.ReportBounds)
	f.runSeconds(120, func(in *steer.PlanInput) { follower.ObserveReports(f.copyInput(in), f.now) })
	in := f.honestInput()
	addDemand(in, 2, 0, 1e6)
	if list := follower.BoundInput(in, f.now.Add(time.Second)); len(list) != 1 || list[0].Counted > fleetRate {
		t.Errorf("demand of another region's cell: %+v", list)
	}
}

// copyInput copies what bounding changes.
func (f *reportingFleet) copyInput(in *steer.PlanInput) *steer.PlanInput {
	out := *in
	out.Demand = append([]steer.CellDemand(nil), in.Demand...)
	out.Regions = append([]steer.RegionState(nil), in.Regions...)
	for r := range out.Regions {
		out.Regions[r].Models = append([]steer.ModelCapacity(nil), in.Regions[r].Models...)
	}
	return &out
}
