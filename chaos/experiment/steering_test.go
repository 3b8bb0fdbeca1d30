package experiment_test

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
)

var steeredTime = flag.Duration("steered", 0, "plan so long a part of the trace's second half, minute by minute")

// testPlaces is thirty regions.
var testPlaces = []regionPlace{
	{"virginia", "americas", 39.0, -77.5},
	{"ohio", "americas", 40.0, -83.0},
	{"oregon", "americas", 45.6, -121.2},
	{"california", "americas", 37.4, -122.0},
	{"texas", "americas", 29.4, -98.5},
	{"montreal", "americas", 45.5, -73.6},
	{"saopaulo", "americas", -23.5, -46.6},
	{"santiago", "americas", -33.4, -70.7},
	{"mexico", "americas", 20.6, -100.4},
	{"dublin", "emea", 53.3, -6.3},
	{"london", "emea", 51.5, -0.1},
	{"paris", "emea", 48.9, 2.4},
	{"frankfurt", "emea", 50.1, 8.7},
	{"zurich", "emea", 47.4, 8.5},
	{"milan", "emea", 45.5, 9.2},
	{"madrid", "emea", 40.4, -3.7},
	{"stockholm", "emea", 59.3, 18.1},
	{"warsaw", "emea", 52.2, 21.0},
	{"telaviv", "emea", 32.1, 34.8},
	{"dubai", "emea", 25.2, 55.3},
	{"johannesburg", "emea", -26.2, 28.0},
	{"mumbai", "apac", 19.1, 72.9},
	{"hyderabad", "apac", 17.4, 78.5},
	{"singapore", "apac", 1.35, 103.8},
	{"jakarta", "apac", -6.2, 106.8},
	{"hongkong", "apac", 22.3, 114.2},
	{"seoul", "apac", 37.6, 127.0},
	{"tokyo", "apac", 35.7, 139.7},
	{"osaka", "apac", 34.7, 135.5},
	{"sydney", "apac", -33.9, 151.2},
}

// TestE11 is the experiment: `go test ./chaos/experiment -run TestE11 -v -args -steered 24h`.
func TestE11(t *testing.T) {
	if *steeredTime == 0 {
		t.Skip("minutes of work: -args -steered 24h runs it")
	}
	work := load.Workload{Name: "w5", Traces: testkit.TracesDir(t), Seed: 1}
	for _, p := range testPlaces {
		work.Regions = append(work.Regions, load.ClientRegion{Name: p.Name, Shift: (time.Duration(math.Round(p.Lon/15))*time.Hour + 24*time.Hour) % (24 * time.Hour)})
	}
	clients, err := work.ClientRates()
	if err != nil {
		t.Fatal(err)
	}
	w, err := newDemandModel(testPlaces, clients)
	if err != nil {
		t.Fatal(err)
	}
	begun, last := time.Now(), -1
	c := w.comparePlanners(84*time.Hour, *steeredTime, time.Minute, func(done float64) {
		if p := int(done * 10); p > last && done < 1 {
			last = p
			t.Logf("%3d %%, %v left", 10*p, time.Duration(float64(time.Since(begun))*(1-done)/done).Round(time.Second))
		}
	})
	fmt.Printf("%d clients of %d models in %d regions, %d epochs of a minute\n", len(clients), modelCount, len(testPlaces), c.Epochs)
	fmt.Printf("%-10s %9s %9s %10s %10s %9s %6s\n", "", "COST", "RTT", "MOVED", "MOST", "TOO MUCH", "PLANS")
	for _, x := range []struct {
		name string
		o    *planningOutcome
	}{{"optimum", &c.Optimum}, {"ours", &c.Ours}, {"flow", &c.Flow}, {"waterfall", &c.Waterfall}} {
		fmt.Printf("%-10s %6.2f ms %6.2f ms %8.3f %% %8.2f %% %7.3f %% %6d\n", x.name, 1000*x.o.Cost, 1000*x.o.RTT, 100*x.o.Moved, 100*x.o.MostMoved, 100*x.o.Lost, x.o.Plans)
	}
	hold := func(ok bool, line string, args ...any) {
		word := "pass"
		if !ok {
			word = "FAIL"
			t.Fail()
		}
		fmt.Printf("%s  %s\n", word, fmt.Sprintf(line, args...))
	}
	hold(c.Ours.Cost <= 1.05*c.Optimum.Cost, "cost of the plan <= 1.05 of the optimum's: %.3f", c.Ours.Cost/c.Optimum.Cost)
	hold(c.Ours.Moved <= 0.015, "demand moved per epoch <= 1.5 %%: %.3f %% on average, %.2f %% at the most", 100*c.Ours.Moved, 100*c.Ours.MostMoved)
	hold(c.Ours.Lost <= c.Optimum.Lost, "no SLO lost at a handover: %.4f %% of demand finds its region full, %.4f %% under the optimum that knows the minute", 100*c.Ours.Lost, 100*c.Optimum.Lost)
	hold(c.Ours.Cost <= c.Waterfall.Cost, "cost of the plan <= the waterfall's: %.3f of it", c.Ours.Cost/c.Waterfall.Cost)
}

// newTestDemand is a small model: all demand is for one or two models, more by day.
func newTestDemand(t *testing.T) *demandModel {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	var clients []load.ClientRate
	for i := range 60 {
		c := load.ClientRate{ID: uint64(i % 13), Region: int32(i % 6)}
		for h := range 48 {
			c.Tokens = append(c.Tokens, 3000*(1+math.Sin(float64(h+4*int(c.Region))/24*math.Pi))*(0.5+rng.Float64()))
		}
		clients = append(clients, c)
	}
	w, err := newDemandModel([]regionPlace{testPlaces[0], testPlaces[1], testPlaces[9], testPlaces[12], testPlaces[27], testPlaces[23]}, clients)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestPlannersServeAllDemand: each method places all demand, none outside its residency, and none is cheaper than the
// optimum.
func TestPlannersServeAllDemand(t *testing.T) {
	w := newTestDemand(t)
	c := w.comparePlanners(4*time.Hour, 2*time.Hour, 10*time.Minute, func(float64) {})
	if c.Epochs != 12 || c.Optimum.Cost <= 0 {
		t.Fatalf("%+v", c)
	}
	for name, o := range map[string]*planningOutcome{"ours": &c.Ours, "flow": &c.Flow, "waterfall": &c.Waterfall} {
		if o.Cost < 0.9*c.Optimum.Cost || o.RTT < 0 || o.Moved < 0 || o.Moved > 1 || math.IsNaN(o.Cost+o.Moved+o.Lost) {
			t.Errorf("%s: %+v, the optimum %+v", name, *o, c.Optimum)
		}
	}
	if c.Ours.Moved > c.Flow.Moved {
		t.Errorf("damped plans move %v of demand, undamped ones %v", c.Ours.Moved, c.Flow.Moved)
	}
	now := 5 * time.Hour
	w.setDemand(now)
	for name, p := range map[string][][][]float64{"ours": w.planShares(w.solvePlan(nil, nil).Plan), "waterfall": w.planShares(w.planWaterfall(now))} {
		for i := range p {
			for cell, parts := range p[i] {
				sum := 0.0
				for r, part := range parts {
					if sum += part; part > 0 && !slices.Contains(w.services[i].allowed, r) {
						t.Errorf("%s sends %v of %s's clients of service %d to %s", name, part, w.places[cell].Name, i, w.places[r].Name)
					}
				}
				if math.Abs(sum-1) > 1e-9 {
					t.Errorf("%s sends %v of the clients of service %d in %s", name, sum, i, w.places[cell].Name)
				}
			}
		}
	}
}

// TestEmptyDemandIsAnError: a model without places or clients is an error.
func TestEmptyDemandIsAnError(t *testing.T) {
	if _, err := newDemandModel(testPlaces, nil); err == nil {
		t.Error("a model without clients is accepted")
	}
}

// planningOutcome is the result of one planning method, over all epochs, weighted by demand.
type planningOutcome struct {
	// Cost is the mean in seconds, by the measure of global/steer, and RTT the mean RTT to the regions alone.
	Cost, RTT float64
	// Moved is the fraction of demand that changed its region from one epoch to the next, on average; MostMoved the
	// maximum.
	Moved, MostMoved float64
	// Lost is the fraction of demand beyond the total capacity of its region for its model.
	Lost float64
	// Plans counts the plans that differ from the previous one.
	Plans int
}

// plannerComparison is the results of all methods. Optimum is judged by the demand that it was computed for, the others by
// the next.
type plannerComparison struct {
	Epochs                         int
	Optimum, Flow, Ours, Waterfall planningOutcome
}

// planningMethod is the state of a planning method.
type planningMethod struct {
	outcome *planningOutcome
	plan    *steer.Plan
	shares  [][][]float64 // service, cell, region
	weight  float64
}

// comparePlanners plans every epoch of a duration, starting at a time of the trace.
func (w *demandModel) comparePlanners(from, duration, epoch time.Duration, progress func(done float64)) *plannerComparison {
	c := &plannerComparison{}
	optimum, flow, ours, fall := &planningMethod{outcome: &c.Optimum}, &planningMethod{outcome: &c.Flow}, &planningMethod{outcome: &c.Ours}, &planningMethod{outcome: &c.Waterfall}
	memory := &steer.SolverMemory{}
	for now := from; now < from+duration; now += epoch {
		w.setDemand(now)
		if c.Epochs++; c.Epochs > 1 {
			for _, x := range []*planningMethod{flow, ours, fall} {
				x.addEpoch(w, now, w.planCost(x.plan))
			}
		}
		best := w.solvePlan(nil, nil)
		optimum.usePlan(w, now, best.Plan)
		optimum.addEpoch(w, now, best.Cost)
		flow.usePlan(w, now, best.Plan)
		if res := w.solvePlan(ours.plan, memory); res.Publish {
			ours.usePlan(w, now, res.Plan)
		}
		fall.usePlan(w, now, w.planWaterfall(now))
		progress(float64(now-from+epoch) / float64(duration))
	}
	for _, x := range []*planningMethod{optimum, flow, ours, fall} {
		o := x.outcome
		o.Cost, o.RTT, o.Lost = o.Cost/x.weight, o.RTT/x.weight, o.Lost/x.weight
		o.Moved /= float64(max(c.Epochs-1, 1))
	}
	return c
}

func (w *demandModel) solvePlan(prev *steer.Plan, memory *steer.SolverMemory) steer.SolveResult {
	w.input.Prev, w.input.Memory = prev, memory
	return steer.SolvePlan(&w.input)
}

// planCost is the cost of a plan with the current demand.
func (w *demandModel) planCost(p *steer.Plan) float64 { return w.solvePlan(p, nil).PrevCost }

// usePlan puts a plan in force.
func (x *planningMethod) usePlan(w *demandModel, now time.Duration, p *steer.Plan) {
	next := w.planShares(p)
	if x.plan != nil {
		moved, all := 0.0, 0.0
		for i := range next {
			for c := range next[i] {
				d := w.services[i].demandAt(c, now)
				all += d
				for r := range next[i][c] {
					moved += d * math.Abs(next[i][c][r]-x.shares[i][c][r]) / 2
				}
			}
		}
		part := moved / max(all, 1e-9)
		x.outcome.Moved += part
		if x.outcome.MostMoved = max(x.outcome.MostMoved, part); part > 0 {
			x.outcome.Plans++
		}
	}
	x.plan, x.shares = p, next
}

// addEpoch adds an epoch under the plan in force.
func (x *planningMethod) addEpoch(w *demandModel, now time.Duration, cost float64) {
	used := make([][]float64, modelCount)
	for m := range used {
		used[m] = make([]float64, len(w.places))
	}
	all, way := 0.0, 0.0
	for i := range w.services {
		for c := range w.places {
			d := w.services[i].demandAt(c, now)
			all += d
			for r, part := range x.shares[i][c] {
				used[w.services[i].model][r] += d * part
				way += d * part * float64(w.input.Cells[c].RTT[r])
			}
		}
	}
	for m := range used {
		for r, u := range used[m] {
			x.outcome.Lost += max(u-w.capacity[m][r], 0)
		}
	}
	x.outcome.Cost, x.outcome.RTT, x.weight = x.outcome.Cost+cost*all, x.outcome.RTT+way, x.weight+all
}

// planShares is the shares of each cell's clients under a plan.
func (w *demandModel) planShares(p *steer.Plan) [][][]float64 {
	var names []string
	var rtt []float32
	for i := range w.input.Cells {
		names, rtt = append(names, w.input.Cells[i].Name), append(rtt, w.input.Cells[i].RTT...)
	}
	table := steer.CompileTable(w.input.Spec, steer.NewGeography(len(w.places), names, rtt), p)
	out := make([][][]float64, len(w.services))
	for i := range out {
		out[i] = make([][]float64, len(w.places))
		svc := p.FindService(serviceNameOf(i))
		for c := range out[i] {
			out[i][c] = make([]float64, len(w.places))
			at := slices.IndexFunc(svc.Rows, func(r steer.CellRow) bool { return r.Cell == w.places[c].Name })
			if at < 0 {
				out[i][c][table.PickRegion(&steer.PickQuery{Service: i, Cell: int32(c), Key: uint64(c)}).Region] = 1
				continue
			}
			for _, s := range svc.Rows[at].Shares {
				out[i][c][s.Region] = float64(s.Weight) / steer.WeightSum
			}
		}
	}
	return out
}

// planWaterfall keeps in each region what it has room for and sends the rest to the nearest with room, region after
// region.
func (w *demandModel) planWaterfall(now time.Duration) *steer.Plan {
	p := &steer.Plan{SpecVersion: 1}
	for _, q := range w.places {
		p.Regions = append(p.Regions, q.Name)
	}
	room := make([][]float64, modelCount)
	for m := range room {
		for _, c := range w.capacity[m] {
			room[m] = append(room[m], 0.85*c)
		}
	}
	for i := range w.services {
		s := &w.services[i]
		svc := steer.ServicePlan{Name: serviceNameOf(i), Wait: make([]float64, len(w.places)), Price: make([]float64, len(w.places))}
		parts := make([][]float64, len(w.places))
		for c := range parts { // first, all demand stays in its region
			parts[c] = make([]float64, len(w.places))
			if slices.Contains(s.allowed, c) {
				parts[c][c] = min(s.demandAt(c, now), room[s.model][c])
				room[s.model][c] -= parts[c][c]
			}
		}
		for c := range parts {
			left := s.demandAt(c, now) - parts[c][c]
			near := slices.Clone(s.allowed)
			slices.SortStableFunc(near, func(a, b int) int { return cmp.Compare(w.input.Cells[c].RTT[a], w.input.Cells[c].RTT[b]) })
			for _, r := range near {
				take := min(left, room[s.model][r])
				parts[c][r], room[s.model][r], left = parts[c][r]+take, room[s.model][r]-take, left-take
			}
			if last := near[0]; left > 0 { // no region has room: overload the nearest with workers
				for _, r := range near {
					if w.capacity[s.model][r] > 0 {
						last = r
						break
					}
				}
				parts[c][last] += left
			}
			if d := s.demandAt(c, now); d > 0 {
				svc.Rows = append(svc.Rows, steer.CellRow{Cell: w.places[c].Name, Shares: roundWeights(parts[c], d)})
			}
		}
		slices.SortFunc(svc.Rows, func(a, b steer.CellRow) int { return cmp.Compare(a.Cell, b.Cell) })
		for _, r := range s.allowed {
			svc.Spread = append(svc.Spread, steer.RegionShare{Region: uint16(r), Weight: uint16(steer.WeightSum / len(s.allowed))})
		}
		p.Services = append(p.Services, svc)
	}
	return p
}

// roundWeights converts parts into a row's weights, which add up to steer.WeightSum.
func roundWeights(parts []float64, all float64) (out []steer.RegionShare) {
	left, most := steer.WeightSum, 0
	for r, part := range parts {
		if n := int(part / all * steer.WeightSum); n > 0 {
			out = append(out, steer.RegionShare{Region: uint16(r), Weight: uint16(n)})
			if left -= n; out[most].Weight < uint16(n) {
				most = len(out) - 1
			}
		}
	}
	if len(out) > 0 {
		out[most].Weight += uint16(left)
	}
	return out
}

// E11 judges the planner alone, without workers: how close its plans are to the optimum, how much demand they move, and
// whether the moved demand finds room, in comparison with a waterfall (each region first, overflow to the nearest with room)
// and with the optimum computed for every epoch.
//
// Demand is ServeGen's clients in thirty regions, each model a service of its own, minute by minute; capacity follows from
// the first half of the trace and plans are judged on the second, which is unknown to them. A plan is judged by the demand of
// the minute after it was made. Its cost is global/steer's own measure: seconds to a region, and the cost of a region above
// its target to the clients served there.

const (
	// modelCount is the number of models of the clients, and residentModels how many of them stay on the client's
	// continent.
	modelCount, residentModels = 50, 10
	// workerTokensPerSecond is the rate of one worker, in tokens/s, and peakUtilisation the used fraction of a
	// model's workers at its peak.
	workerTokensPerSecond, peakUtilisation = 5000.0, 0.7
)

// regionPlace is a region with its continent, for residency.
type regionPlace struct {
	Name, Continent string
	Lat, Lon        float64
}

// demandModel is the clients' demand and the capacity.
type demandModel struct {
	places   []regionPlace
	input    steer.PlanInput
	services []modelService
	capacity [][]float64 // model, region; tokens/s
	windows  int
}

// modelService is a model for the clients of one continent, or of all.
type modelService struct {
	model   int
	allowed []int       // regions
	demand  [][]float64 // cell, window; tokens/s
}

// newDemandModel assigns clients to models. Capacity is the peak demand of the first half of the trace, where it
// occurs.
func newDemandModel(places []regionPlace, clients []load.ClientRate) (*demandModel, error) {
	if len(clients) == 0 || len(places) == 0 {
		return nil, fmt.Errorf("%d clients in %d places: use at least one of each", len(clients), len(places))
	}
	w := &demandModel{places: places, windows: len(clients[0].Tokens), capacity: make([][]float64, modelCount)}
	w.makeServices()
	for i := range clients {
		c := &clients[i]
		s := w.serviceFor(int(c.ID%modelCount), int(c.Region))
		for t, tokens := range c.Tokens[:min(len(c.Tokens), w.windows)] {
			s.demand[c.Region][t] += tokens
		}
	}
	w.placeWorkers()
	w.writeInput()
	return w, nil
}

// makeServices makes the services, the first models with one for each continent.
func (w *demandModel) makeServices() {
	var continents []string
	for _, p := range w.places {
		if !slices.Contains(continents, p.Continent) {
			continents = append(continents, p.Continent)
		}
	}
	add := func(model int, continent string) {
		s := modelService{model: model, demand: make([][]float64, len(w.places))}
		for r, p := range w.places {
			s.demand[r] = make([]float64, w.windows)
			if continent == "" || p.Continent == continent {
				s.allowed = append(s.allowed, r)
			}
		}
		w.services = append(w.services, s)
	}
	for m := range modelCount {
		if m >= residentModels {
			add(m, "")
			continue
		}
		for _, c := range continents {
			add(m, c)
		}
	}
}

func (w *demandModel) serviceFor(model, region int) *modelService {
	i := slices.IndexFunc(w.services, func(s modelService) bool { return s.model == model && slices.Contains(s.allowed, region) })
	return &w.services[i]
}

// placeWorkers places workers by the demand of the first half of the trace.
func (w *demandModel) placeWorkers() {
	for m := range w.capacity {
		w.capacity[m] = make([]float64, len(w.places))
	}
	half := w.windows / 2
	for i := range w.services {
		s := &w.services[i]
		mean, peak, all := make([]float64, len(w.places)), 0.0, 0.0
		for t := range half {
			sum := 0.0
			for r := range mean {
				mean[r] += s.demand[r][t]
				sum += s.demand[r][t]
			}
			peak, all = max(peak, sum), all+sum
		}
		if all == 0 {
			continue
		}
		for range int(math.Ceil(peak / peakUtilisation / workerTokensPerSecond)) {
			// The next worker goes where demand is covered least.
			best := slices.MaxFunc(s.allowed, func(a, b int) int {
				return cmp.Compare(mean[a]/(w.capacity[s.model][a]+workerTokensPerSecond), mean[b]/(w.capacity[s.model][b]+workerTokensPerSecond))
			})
			w.capacity[s.model][best] += workerTokensPerSecond
		}
	}
}

// writeInput writes the planner's input, except demand.
func (w *demandModel) writeInput() {
	sp := &spec.Spec{Steering: spec.Steering{Interval: spec.Duration(time.Second), DeadBand: 0.05, MaxStep: 0.25, MinShift: 0.02, Slew: 0.25}}
	for r, p := range w.places {
		sp.Regions = append(sp.Regions, spec.Region{Name: p.Name, MaxShare: 0.85})
		cell := steer.Cell{Name: p.Name}
		for _, q := range w.places {
			cell.RTT = append(cell.RTT, float32(geo.PriorRTT(geo.Location{Lat: p.Lat, Lon: p.Lon}, geo.Location{Lat: q.Lat, Lon: q.Lon}).Seconds()))
		}
		w.input.Cells = append(w.input.Cells, cell)
		region := steer.RegionState{}
		for m := range modelCount {
			if c := w.capacity[m][r]; c > 0 {
				region.Models = append(region.Models, steer.ModelCapacity{Name: modelNameOf(m), Rate: c, Ready: c / workerTokensPerSecond, Total: c / workerTokensPerSecond})
			}
		}
		w.input.Regions = append(w.input.Regions, region)
	}
	for m := range modelCount {
		sp.Models = append(sp.Models, spec.Model{Name: modelNameOf(m)})
	}
	for i := range w.services {
		s := &w.services[i]
		svc := spec.Service{Name: serviceNameOf(i), Mode: "latency", Models: []string{modelNameOf(s.model)}}
		for _, r := range s.allowed {
			svc.Regions = append(svc.Regions, w.places[r].Name)
		}
		sp.Services = append(sp.Services, svc)
	}
	w.input.Spec, w.input.SpecVersion = sp, 1
}

func modelNameOf(m int) string { return fmt.Sprintf("m%02d", m) }

func serviceNameOf(i int) string { return fmt.Sprintf("s%03d.example.", i) }

// demandAt is the demand of a service's clients in a cell, interpolated between the middles of the trace's windows.
func (s *modelService) demandAt(cell int, now time.Duration) float64 {
	list := s.demand[cell]
	x := float64(now)/float64(load.RateWindow) - 0.5
	i := int(math.Floor(x))
	part := x - float64(i)
	n := len(list)
	return list[(i%n+n)%n]*(1-part) + list[((i+1)%n+n)%n]*part
}

// setDemand sets the demand of a time.
func (w *demandModel) setDemand(now time.Duration) {
	w.input.Demand = w.input.Demand[:0]
	for i := range w.services {
		s := &w.services[i]
		for c := range w.places {
			if d := s.demandAt(c, now); d > 0 {
				w.input.Demand = append(w.input.Demand, steer.CellDemand{Service: serviceNameOf(i), Model: modelNameOf(s.model), Cell: w.places[c].Name, Rate: d})
			}
		}
	}
}
