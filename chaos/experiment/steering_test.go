package experiment_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
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
