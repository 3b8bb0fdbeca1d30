package steer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// hubLocations are the region locations of the measured fleet of reference 5.3: latitude and longitude, degrees.
var hubLocations = [][2]float64{
	{39, -77},
	{41, -93},
	{37, -122},
	{45, -120},
	{34, -84},
	{45, -73},
	{-23, -46},
	{51, 0},
	{50, 8},
	{48, 2},
	{53, -6},
	{59, 18},
	{40, -4},
	{45, 9},
	{52, 21},
	{25, 55},
	{19, 73},
	{28, 77},
	{1, 104},
	{-6, 107},
	{22, 114},
	{31, 121},
	{40, 116},
	{35, 139},
	{34, 135},
	{37, 127},
	{25, 121},
	{-34, 151},
	{-26, 28},
	{32, 35},
}

const worldUtilisation = 0.78

// newWorldProblems draws the problems that the speed target is stated for.
func newWorldProblems(clients, models int) []*transportProblem {
	rng := rand.New(rand.NewPCG(7, 7))
	places := make([][2]float64, clients)
	for c := range places {
		h := hubLocations[rng.IntN(len(hubLocations))]
		places[c] = [2]float64{h[0] + rng.NormFloat64()*6, h[1] + rng.NormFloat64()*8}
	}
	var out []*transportProblem
	for range models {
		out = append(out, newWorldProblem(rng, places))
	}
	return out
}

func newWorldProblem(rng *rand.Rand, places [][2]float64) *transportProblem {
	m := &transportProblem{regions: len(hubLocations) + 1, clients: len(places)}
	sum := 0.0
	for _, p := range places {
		hour := 0.35 + 0.65*math.Pow(0.5+0.5*math.Cos((14+p[1]/15-15)/24*2*math.Pi), 1.5)
		m.demand = append(m.demand, math.Exp(rng.NormFloat64())*hour)
		sum += m.demand[len(m.demand)-1]
	}
	for c := range m.demand {
		m.demand[c] /= sum
	}
	room, all := make([]float64, len(hubLocations)), 0.0
	for r := range room {
		if rng.Float64() >= 0.35 {
			room[r] = math.Exp(rng.NormFloat64() * 0.7)
		}
		all += room[r]
	}
	for r := range room {
		k := room[r] / all / worldUtilisation
		m.segments = append(m.segments, []segment{{0.70 * k, 0}, {0.15 * k, 0.020}, {0.10 * k, 0.120}, {0.05 * k, 0.500}})
	}
	m.segments = append(m.segments, []segment{{math.Inf(1), 5}})
	for c, p := range places {
		european := p[1] > -10 && p[1] < 30 && p[0] > 36 && c%2 == 0
		for r, h := range hubLocations {
			switch inEurope := h[1] > -12 && h[1] < 32 && h[0] > 36; {
			case room[r] == 0, european && !inEurope:
				m.cost = append(m.cost, math.Inf(1))
			default:
				m.cost = append(m.cost, 0.002+greatCircleKm(p, h)/100*0.00135)
			}
		}
		m.cost = append(m.cost, 0)
	}
	return m
}

func greatCircleKm(a, b [2]float64) float64 {
	const rad = math.Pi / 180
	s, l := math.Sin((b[0]-a[0])*rad/2), math.Sin((b[1]-a[1])*rad/2)
	return 2 * 6371 * math.Asin(math.Sqrt(s*s+math.Cos(a[0]*rad)*math.Cos(b[0]*rad)*l*l))
}

// addMarketNoise returns the problem with ten percent of noise on its demand, and the old assignment adapted to it.
func addMarketNoise(rng *rand.Rand, m *transportProblem, x []float64) (*transportProblem, []float64) {
	next := *m
	next.demand = make([]float64, m.clients)
	sum := 0.0
	for c, d := range m.demand {
		next.demand[c] = d * math.Exp(rng.NormFloat64()*0.10)
		sum += next.demand[c]
	}
	y := make([]float64, len(x))
	for c := range next.demand {
		next.demand[c] /= sum
		for r := range m.regions {
			y[c*m.regions+r] = x[c*m.regions+r] * next.demand[c] / m.demand[c]
		}
	}
	return &next, y
}

func TestWorldProblemIsSolvedExactly(t *testing.T) {
	var f flowSolver
	rng := rand.New(rand.NewPCG(1, 1))
	for _, m := range newWorldProblems(200, 10) {
		f.solveCold(m)
		checkFeasible(t, m, &f)
		checkOptimal(t, m, &f, "cold")
		next, x := addMarketNoise(rng, m, append([]float64(nil), f.x...))
		if !f.solveWarm(next, x) {
			t.Fatal("warm did not finish")
		}
		checkFeasible(t, next, &f)
		checkOptimal(t, next, &f, "warm")
	}
}

func BenchmarkFlowCold(b *testing.B) {
	markets := newWorldProblems(200, 50)
	var f flowSolver
	for b.Loop() {
		for _, m := range markets {
			f.solveCold(m)
		}
	}
	b.ReportMetric(float64(f.augmentations)/float64(b.N)/float64(len(markets)), "augmentations/model")
}

func BenchmarkFlowWarm(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	var markets []*transportProblem
	var starts [][]float64
	var f flowSolver
	for _, m := range newWorldProblems(200, 50) {
		f.solveCold(m)
		next, x := addMarketNoise(rng, m, append([]float64(nil), f.x...))
		markets, starts = append(markets, next), append(starts, x)
	}
	f.augmentations = 0
	for b.Loop() {
		for i, m := range markets {
			f.solveWarm(m, starts[i])
		}
	}
	b.ReportMetric(float64(f.augmentations)/float64(b.N)/float64(len(markets)), "augmentations/model")
}

// newWorldInput is the same fleet as a PlanInput: a service per model, or one service for all models.
func newWorldInput(cells, models int, oneService bool) *PlanInput {
	in := &PlanInput{Spec: &spec.Spec{Steering: spec.Steering{DeadBand: 0.05, MaxStep: 0.25}}, SpecVersion: 1}
	for r := range hubLocations {
		in.Spec.Regions = append(in.Spec.Regions, spec.Region{Name: fmt.Sprintf("r%02d", r), MaxShare: 0.85})
		in.Regions = append(in.Regions, RegionState{})
	}
	if oneService {
		in.Spec.Services = []spec.Service{{Name: "s.", Mode: "latency"}}
	}
	for k, m := range newWorldProblems(cells, models) {
		model := fmt.Sprintf("m%02d", k)
		in.Spec.Models = append(in.Spec.Models, spec.Model{Name: model})
		service := "s."
		if !oneService {
			service = model + "."
			in.Spec.Services = append(in.Spec.Services, spec.Service{Name: service, Mode: "latency", Models: []string{model}})
		}
		for r, segs := range m.segments[:len(hubLocations)] {
			all := 0.0
			for _, s := range segs {
				all += s.room
			}
			in.Regions[r].Models = append(in.Regions[r].Models, ModelCapacity{Name: model, Rate: all * 1e5, Ready: 8})
		}
		for c, d := range m.demand {
			if k == 0 {
				cell := Cell{Name: fmt.Sprintf("c%04d", c)}
				for r := range hubLocations {
					k := m.cost[c*m.regions+r]
					if math.IsInf(k, 1) {
						k = 0.4
					}
					cell.RTT = append(cell.RTT, float32(k))
				}
				in.Cells = append(in.Cells, cell)
			}
			in.Demand = append(in.Demand, CellDemand{Service: service, Model: model, Cell: in.Cells[c].Name, Rate: d * 1e5})
		}
	}
	return in
}

// addDemandNoise is the same input with ten percent of noise on the demand.
func addDemandNoise(rng *rand.Rand, in *PlanInput) *PlanInput {
	out := *in
	out.Demand = append([]CellDemand(nil), in.Demand...)
	for i := range out.Demand {
		out.Demand[i].Rate *= math.Exp(rng.NormFloat64() * 0.10)
	}
	return &out
}

func benchmarkSolve(b *testing.B, one, warm bool) {
	in := newWorldInput(200, 50, one)
	worlds := []*PlanInput{in}
	if warm { // as a leader does: new noise each time, with the memory of the previous solve
		in.Memory = new(SolverMemory)
		in.Prev = SolvePlan(in).Plan
		rng := rand.New(rand.NewPCG(2, 2))
		worlds = nil
		for range 8 {
			worlds = append(worlds, addDemandNoise(rng, in))
		}
	}
	begun := processCPUTime()
	for i := 0; b.Loop(); i++ {
		SolvePlan(worlds[i%len(worlds)])
	}
	b.ReportMetric((processCPUTime()-begun).Seconds()*1000/float64(b.N), "cpu-ms/op")
}

func BenchmarkSolveColdServicePerModel(b *testing.B) { benchmarkSolve(b, false, false) }
func BenchmarkSolveWarmServicePerModel(b *testing.B) { benchmarkSolve(b, false, true) }
func BenchmarkSolveColdOneService(b *testing.B)      { benchmarkSolve(b, true, false) }
func BenchmarkSolveWarmOneService(b *testing.B)      { benchmarkSolve(b, true, true) }

// processCPUTime is the CPU time of this process over all cores.
func processCPUTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
