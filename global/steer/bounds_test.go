package steer_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/spec"
)

// reports is a small fleet whose gateways report what its clients do: three regions with a cell at 5 ms each, clients
// that follow a plan within a TTL, and a leader that plans every second from bounded reports.
type reports struct {
	now     time.Time
	spec    *spec.Spec
	bounds  steer.Bounds
	prev    *steer.Plan
	at      [][]float64 // by cell and region: the part of the cell's clients that arrives there
	demand  []float64   // by cell, tokens/s
	models  []steer.Model
	excess  []steer.Excess
	counted *steer.Input
	drained steer.Set
}

const fleetRate = 30_000.0

func newReports() *reports {
	f := &reports{now: time.Unix(1_000_000, 0), spec: oneService(3), demand: []float64{5000, 5000, 5000}}
	f.spec.Steering.Interval = spec.Duration(time.Second)
	f.spec.Services[0].TTL = spec.Duration(30 * time.Second)
	for r := range 3 {
		f.models = append(f.models, workers(fleetRate, 10))
		f.at = append(f.at, make([]float64, 3))
		f.at[r][r] = 1
	}
	return f
}

func workers(rate, n float64) steer.Model {
	return steer.Model{Name: model, Rate: rate, Ready: n, Total: n, Hardware: []steer.Hardware{{Name: "h100", Ready: n, Rate: rate}}}
}

// input is what honest gateways report now.
func (f *reports) input() *steer.Input {
	in := &steer.Input{Spec: f.spec, SpecVersion: 1, Prev: f.prev}
	for r := range 3 {
		m := f.models[r]
		m.Hardware = append([]steer.Hardware(nil), m.Hardware...)
		in.Regions = append(in.Regions, steer.Region{Models: []steer.Model{m}})
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
	for c := range f.at {
		for r, part := range f.at[c] {
			if part > 0 {
				in.Demand = append(in.Demand, steer.Demand{Service: service, Model: model, Cell: cellName(c), Region: f.spec.Regions[r].Name, Rate: part * f.demand[c]})
			}
		}
	}
	return in
}

// claim adds to what a region reports of a cell.
func claim(in *steer.Input, region, cell int, rate float64) {
	in.Demand = append(in.Demand, steer.Demand{Service: service, Model: model, Cell: cellName(cell), Region: in.Spec.Regions[region].Name, Rate: rate})
}

// run lets seconds pass. Gateways report what lie leaves of the truth.
func (f *reports) run(seconds int, lie func(*steer.Input)) {
	for range seconds {
		f.now = f.now.Add(time.Second)
		in := f.input()
		if lie != nil {
			lie(in)
		}
		f.excess = f.bounds.Observe(in, f.now)
		f.counted = in
		f.prev = steer.Solve(in).Plan
		f.drained = steer.Set{}
		for r := range in.Regions {
			if in.Regions[r].Drained {
				f.drained.Add(r)
			}
		}
		for c := range f.at {
			for r, part := range f.shares(c) {
				f.at[c][r] += (part - f.at[c][r]) / 30
			}
		}
	}
}

// shares is where the plan in force sends a cell.
func (f *reports) shares(c int) []float64 {
	out := make([]float64, 3)
	for _, row := range f.prev.Services[0].Rows {
		if row.Cell == cellName(c) {
			for _, s := range row.Shares {
				out[s.Region] = float64(s.Weight) / steer.WeightSum
			}
			return out
		}
	}
	in := f.input()
	table := steer.Compile(f.spec, geography(in), f.prev)
	out[table.Pick(&steer.Query{Cell: int32(c), Drained: f.drained}).Region] = 1
	return out
}

func (f *reports) countedOf(region, cell int) (sum float64) {
	for _, d := range f.counted.Demand {
		if d.Service == service && d.Cell == cellName(cell) && d.Region == f.spec.Regions[region].Name {
			sum += d.Rate
		}
	}
	return sum
}

// TestOneRegionCannotTakeTheFleet: whatever one region reports of demand and capacity, from one moment to the next or by
// degrees, the clients of the other regions stay where they are.
func TestOneRegionCannotTakeTheFleet(t *testing.T) {
	for _, l := range []struct {
		name             string
		demand, capacity float64
		cells            []int // of which it claims demand
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
				f := newReports()
				f.run(120, nil)
				step := 0
				lie := func(in *steer.Input) {
					part := 1.0
					if step++; grow {
						part = math.Min(1, math.Pow(1.05, float64(step-300)))
					}
					for _, c := range l.cells {
						claim(in, 2, c, l.demand*part)
					}
					rate := math.Max(fleetRate, l.capacity*part)
					in.Regions[2].Models[0] = workers(rate, rate/3000)
				}
				worst, spread := 1.0, uint16(0)
				for range 60 {
					f.run(10, lie)
					for c := range 2 {
						worst = math.Min(worst, f.shares(c)[c])
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
				// riseMost times as much as each of the two others: 8 of 10. The mean of an hour rises by some meanwhile.
				if part := float64(spread) / steer.WeightSum; part > 0.92 {
					t.Errorf("%.0f %% of the clients of no known place are sent to it", part*100)
				}
				if len(f.excess) == 0 || f.excess[0].Region != "r2" || !f.excess[0].Odd {
					t.Errorf("what is not counted is not told: %+v", f.excess)
				}
			})
		}
	}
}

// TestDeclaredWorkersBoundCapacity: with max_workers a region counts for no more, from its first report on.
func TestDeclaredWorkersBoundCapacity(t *testing.T) {
	f := newReports()
	f.spec.Regions[2].MaxWorkers = 12
	for _, c := range []struct{ rate, workers, want float64 }{
		{fleetRate, 10, fleetRate},
		{fleetRate * 1.2, 12, fleetRate * 1.2},
		{1e8, 1e8 / 3000, 12 * 3000},       // too many workers
		{1e8, 12, 12 * 3000 * 10},          // too fast ones: outlier times the others' rate
		{1e8, 1e4, 12 * 3000 * 1e4 / 3000}, // both
	} {
		in := f.input()
		in.Regions[2].Models[0] = workers(c.rate, c.workers)
		var b steer.Bounds
		b.Observe(in, f.now)
		if got := in.Regions[2].Models[0].Rate; math.Abs(got-c.want) > 1 {
			t.Errorf("%g workers with %g tokens/s count for %g tokens/s, want %g", c.workers, c.rate, got, c.want)
		}
	}
}

// TestWrongUnitOfARate: a learned rate that is a thousand times too high, on hardware that others have too, counts for
// outlier times theirs from the first report on.
func TestWrongUnitOfARate(t *testing.T) {
	f := newReports()
	in := f.input()
	in.Regions[1].Models[0] = workers(fleetRate*1000, 10)
	list := f.bounds.Observe(in, f.now)
	if got := in.Regions[1].Models[0].Rate; got != fleetRate*10 {
		t.Errorf("the rate counts for %g tokens/s, want %g", got, fleetRate*10)
	}
	if len(list) != 1 || list[0].Region != "r1" || list[0].Kind != steer.KindCapacity || list[0].Told != fleetRate*1000 || list[0].Count != fleetRate*10 {
		t.Errorf("told %+v", list)
	}
}

// TestHonestGrowthIsFollowed: what an honest region gains counts soon: twice its workers, a restart, a warm pool and a
// small region that grows to the size of the others.
func TestHonestGrowthIsFollowed(t *testing.T) {
	for _, c := range []struct {
		name   string
		before steer.Model
		after  steer.Model
		within int // seconds until all of it counts
	}{
		{"twice the workers", workers(fleetRate, 10), workers(2*fleetRate, 20), 31},
		{"four times the workers", workers(fleetRate, 10), workers(4*fleetRate, 40), 61},
		{"a restart", workers(0, 0), workers(fleetRate, 10), 1},
		{"a small region grows to the size of others", workers(3000, 1), workers(fleetRate, 10), 1},
		{"one worker more", workers(3000, 1), workers(6000, 2), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newReports()
			f.run(120, nil)
			f.models[2] = c.before
			f.run(120, nil)
			f.models[2] = c.after
			for s := 1; ; s++ {
				f.run(1, nil)
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

// TestNewRegionIsFollowed: a region that joins counts at once for as much as the largest, and then doubles.
func TestNewRegionIsFollowed(t *testing.T) {
	f := newReports()
	f.models[2] = steer.Model{Name: model}
	f.run(120, nil)
	f.models[2] = workers(8*fleetRate, 80)
	f.run(1, nil)
	if got := f.counted.Regions[2].Models[0].Rate; math.Abs(got-fleetRate) > 1 {
		t.Errorf("at once %g tokens/s count, want %g", got, fleetRate)
	}
	f.run(95, nil)
	if got := f.counted.Regions[2].Models[0].Rate; got < 8*fleetRate*0.999 {
		t.Errorf("after 95 s %g tokens/s count, want %g", got, 8*fleetRate)
	}
}

// TestFlashCrowdIsFollowed: a cell asks ten times as much within a minute. All of it counts while its clients are where
// the plan sends them, and more than its region can take goes elsewhere within two minutes.
func TestFlashCrowdIsFollowed(t *testing.T) {
	f := newReports()
	f.run(120, nil)
	for s := range 180 {
		f.demand[1] = 5000 * math.Min(10, 1+9*float64(s)/60)
		f.run(1, nil)
		counted := f.countedOf(0, 1) + f.countedOf(1, 1) + f.countedOf(2, 1)
		if counted < 0.98*f.demand[1] {
			t.Fatalf("after %d s %.0f of %.0f tokens/s count", s, counted, f.demand[1])
		}
		for _, e := range f.excess {
			if e.Odd {
				t.Fatalf("after %d s an honest fleet is warned of: %+v", s, e)
			}
		}
	}
	if at := f.at[1][1] * f.demand[1]; at > fleetRate {
		t.Errorf("three minutes after it began, %.0f tokens/s still arrive at a region that has %.0f", at, fleetRate)
	}
	for c := range f.at {
		if c != 1 && f.shares(c)[c] < 0.99 {
			t.Errorf("cell %d: %v", c, f.shares(c))
		}
	}
}

// TestDrainIsFollowed: the demand of a drained region's clients counts in full while they move.
func TestDrainIsFollowed(t *testing.T) {
	f := newReports()
	f.demand[2] = 20_000
	f.run(120, nil)
	for s := range 120 {
		f.run(1, func(in *steer.Input) { in.Regions[2].Drained = true })
		if counted := f.countedOf(0, 2) + f.countedOf(1, 2) + f.countedOf(2, 2); counted < 0.95*f.demand[2] {
			t.Fatalf("%d s after the drain %.0f of %.0f tokens/s count", s, counted, f.demand[2])
		}
	}
}

// TestStrayClientsCountWhereTheyArrive: clients whose resolver is elsewhere arrive at a region that the plan does not
// send them to. They fill that region, and no warning is given.
func TestStrayClientsCountWhereTheyArrive(t *testing.T) {
	f := newReports()
	f.run(120, nil)
	f.run(60, func(in *steer.Input) { claim(in, 2, 0, 20_000) })
	if got := f.countedOf(2, 0); got > 0.1*5000+0.05*fleetRate+1 {
		t.Errorf("%.0f tokens/s of the cell are steered", got)
	}
	stay := 0.0
	for _, d := range f.counted.Demand {
		if d.Service == "" && d.Region == "r2" {
			stay += d.Rate
		}
	}
	if got := stay + f.countedOf(2, 0); math.Abs(got-20_000) > 1 {
		t.Errorf("%.0f tokens/s count in the region where they arrive, want 20000", got)
	}
	for _, e := range f.excess {
		if e.Odd {
			t.Errorf("an honest fleet is warned of: %+v", e)
		}
	}
}

// TestSmallCellsKeepTheirRegion: the greatest demand elsewhere does not spread a cell whose own demand is small.
func TestSmallCellsKeepTheirRegion(t *testing.T) {
	for _, other := range []float64{1e3, 1e6, 1e9, 1e12, 1e15} {
		f := newReports()
		in := f.input()
		in.Demand[0].Rate, in.Demand[1].Rate, in.Demand[2].Rate = 1, 2, other
		plan := steer.Solve(in).Plan
		f.prev = plan
		for c := range 2 {
			if got := f.shares(c)[c]; got < 0.99 {
				t.Errorf("with %g tokens/s elsewhere, %.0f %% of cell %d stay at home", other, got*100, c)
			}
		}
	}
}

// TestHeavyNetworksAreNoMoreThanTheirCell: a region cannot claim networks that ask for more than its clients do.
func TestHeavyNetworksAreNoMoreThanTheirCell(t *testing.T) {
	f := newReports()
	f.run(120, nil)
	in := f.input()
	claim(in, 2, 0, 1e9)
	in.Heavy = []steer.Heavy{
		{Service: service, Cell: cellName(0), Network: 7, Rate: 9e8, Region: "r2"},
		{Service: service, Cell: cellName(0), Network: 8, Rate: 3000, Region: "r0"},
		{Service: service, Cell: cellName(1), Network: 9, Rate: 1e9, Region: "r2"},
	}
	f.bounds.Observe(in, f.now.Add(time.Second))
	if h := in.Heavy[0].Rate; h > 0.1*5000+0.05*fleetRate {
		t.Errorf("a network in a cell that the region does not see asks for %g tokens/s", h)
	}
	if in.Heavy[1].Rate != 3000 || in.Heavy[2].Rate != 0 {
		t.Errorf("an honest network counts for %g, want 3000; one without demand for %g, want 0", in.Heavy[1].Rate, in.Heavy[2].Rate)
	}
}

// TestBoundsAreBounded: any reports leave amounts that are numbers, and no more capacity than was reported.
func TestBoundsAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newReports()
		f.bounds = steer.Bounds{}
		odd := rapid.OneOf(rapid.Float64(), rapid.Just(math.Inf(1)), rapid.Just(math.NaN()), rapid.Just(0.0), rapid.Float64Range(0, 1e6))
		for range rapid.IntRange(1, 5).Draw(t, "rounds") {
			f.now = f.now.Add(time.Duration(rapid.IntRange(-1, 100).Draw(t, "seconds")) * time.Second)
			in := f.input()
			m := &in.Regions[rapid.IntRange(0, 2).Draw(t, "region")].Models[0]
			m.Rate, m.Ready, m.Warm = odd.Draw(t, "rate"), odd.Draw(t, "ready"), odd.Draw(t, "warm")
			m.Hardware[0].Rate, m.Hardware[0].Ready = odd.Draw(t, "h rate"), odd.Draw(t, "h ready")
			claim(in, rapid.IntRange(0, 2).Draw(t, "liar"), rapid.IntRange(0, 3).Draw(t, "cell"), odd.Draw(t, "demand"))
			told := m.Rate
			f.bounds.Observe(in, f.now)
			if m.Rate > math.Max(told, 0) {
				t.Fatalf("%g tokens/s became %g", told, m.Rate)
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
			f.prev = steer.Solve(in).Plan
		}
	})
}
