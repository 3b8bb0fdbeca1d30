package experiment

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/sim"
)

// TestLoadsAreSharesOfTheKnee: values are fractions of what a policy sustains that need not be run, a threshold is
// based on the requests in flight there, and a knee outside the search is an error.
func TestLoadsAreSharesOfTheKnee(t *testing.T) {
	e := goodExperiment(t)
	e.Seeds, e.Values = 1, []float64{0.5, 2}
	e.Workload.Repeat = true
	e.Knee = Knee{Policy: "least_connections", Case: "free", Search: CapacitySearch{From: 1, To: 200, Attainment: .99, Within: .2}}
	e.Cases = []Case{{Name: "free"}, {Name: "hard", Threshold: 0.5, Anonymous: true}}
	e.Pass = []Assertion{{Line: "attainment(predictive, free, value=0.5) >= 99%"}, {Line: "missed(predictive, hard, value=2) > 10%"}}
	r, err := RunExperiment(t.Context(), e, Options{})
	if err != nil {
		t.Fatal(err)
	}
	knee := r.Cases[0].Knee
	if knee == nil || knee.Value <= 1 || knee.Value >= 200 || knee.UnderWay <= 0 || r.Cases[1].Knee.Case != "free" {
		t.Fatalf("the knee is %+v", knee)
	}
	for _, row := range r.Cases[1].Rows {
		if *row.Load != *row.Value*knee.Value {
			t.Errorf("%v of the knee %v is %v", *row.Value, knee.Value, *row.Load)
		}
	}
	if !r.Passed {
		t.Errorf("lines: %+v", r.Lines)
	}
	var text, page bytes.Buffer
	if err := r.WriteTables(&text); err != nil || !strings.Contains(text.String(), "the most that least_connections sustains") {
		t.Errorf("%v: %s", err, text.String())
	}
	if err := r.WritePage(&page); err != nil || !strings.Contains(page.String(), "the most that least_connections sustains") {
		t.Errorf("%v: %s", err, page.String())
	}
	for _, bounds := range [][2]float64{{150, 200}, {0.5, 1}} {
		e.Knee.Search.From, e.Knee.Search.To = bounds[0], bounds[1]
		if _, err := RunExperiment(t.Context(), e, Options{}); err == nil || !strings.Contains(err.Error(), "hint: ") {
			t.Errorf("a knee outside %v: %v", bounds, err)
		}
	}
}

// TestTraceThatEndsEarlyWarns: a trace that ends early causes a warning next to all its figures, and a
// repeated one does not.
func TestTraceThatEndsEarlyWarns(t *testing.T) {
	e := goodExperiment(t)
	e.Seeds, e.Values = 1, []float64{40} // 400 requests in 10 of 20 s
	for _, repeat := range []bool{false, true} {
		e.Workload.Repeat = repeat
		r, err := RunExperiment(t.Context(), e, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := r.WriteTables(&b); err != nil || strings.Contains(b.String(), "the trace ends at") == repeat {
			t.Errorf("repeat %v: %v: %s", repeat, err, b.String())
		}
	}
}

// TestRecoveryTimeEndsAfterLastLoss: the end of the last interval that is worse than before, from the last injected
// or cleared fault before it.
func TestRecoveryTimeEndsAfterLastLoss(t *testing.T) {
	r := &sim.RunResult{Window: 90 * time.Second, Faults: []sim.Fault{{At: 30 * time.Second, For: 20 * time.Second}}}
	for range 100 {
		r.PerSecond = append(r.PerSecond, sim.SecondCounts{Sent: 100, Good: 99})
	}
	want := func(seconds float64) {
		t.Helper()
		if got, why := recoveryTime(r); got != seconds || why != "" {
			t.Errorf("%v s (%s), want %v", got, why, seconds)
		}
	}
	want(0)
	r.PerSecond[20].Good = 0 // before any fault
	r.PerSecond[25].Good = 90
	want(0)
	for s := 31; s < 35; s++ {
		r.PerSecond[s].Good = 50
	}
	want(7) // the last bad second is in the interval that ends two seconds later
	for s := 50; s < 62; s++ {
		r.PerSecond[s].Good = 10
	}
	want(14)
	r.Faults = nil
	if _, why := recoveryTime(r); why == "" {
		t.Error("without a fault there is a recovery time")
	}
}

// TestAffectedShareCountsTenSeconds: requests due at the target of a fault, in its first ten seconds, are a share of
// its region's requests.
func TestAffectedShareCountsTenSeconds(t *testing.T) {
	r := &sim.RunResult{
		Regions: []sim.Breakdown{{Name: "a", Counts: sim.RequestCounts{Sent: 3000}}, {Name: "b", Counts: sim.RequestCounts{Sent: 7000}}},
		Workers: []sim.WorkerResult{{Region: "a", Zone: "x"}, {Region: "a", Zone: "y"}, {Region: "a", Zone: "y"}, {Region: "b", Zone: "x"}},
	}
	r.Measured.Sent = 10_000
	for range 100 {
		r.PerSecond = append(r.PerSecond, sim.SecondCounts{Sent: 100})
	}
	for _, c := range []struct {
		fault sim.Fault
		want  float64
	}{
		{sim.Fault{Kind: sim.RegionDead, Region: "a", At: 20 * time.Second, For: 30 * time.Second}, 0.3 * 0.1},
		{sim.Fault{Kind: sim.RegionDead, Region: "b", At: 95 * time.Second}, 0.7 * 0.05},
		{sim.Fault{Kind: sim.ZoneDead, Region: "a", Zone: "y", At: 20 * time.Second}, 0.3 * 0.1 * 2 / 3},
		{sim.Fault{Kind: sim.WorkerStalled, Region: "a", Zone: "y", At: 20 * time.Second, For: 5 * time.Second}, 0.3 * 0.05 / 3},
		{sim.Fault{Kind: sim.GlobalDead, At: 20 * time.Second}, 0},
		{sim.Fault{Kind: sim.Partition, Region: "a", At: 20 * time.Second}, 0},
	} {
		r.Faults = []sim.Fault{c.fault}
		if got, why := affectedShare(r); math.Abs(got-c.want) > 1e-12 || why != "" {
			t.Errorf("%+v strikes %v (%s), want %v", c.fault, got, why, c.want)
		}
	}
	r.Faults = nil
	if _, why := affectedShare(r); why == "" {
		t.Error("without a fault, requests count as affected")
	}
}

// TestDifferentFiguresPrintDifferently: two unequal sides print differently.
func TestDifferentFiguresPrintDifferently(t *testing.T) {
	for _, c := range []struct {
		left, right float64
		unit, want  string
	}{
		{71.671, 71.694, "/s", "71.67 /s < 71.69 /s"},
		{0.99899, 0.99902, "%", "99.90 % < 99.90 %"},
		{1.2345678, 1.2345679, "s", "1.2345678 s < 1.2345679 s"},
		{12, 13, "", "12.0 < 13.0"},
		{12, 12, "", "12.0 >= 12.0"},
	} {
		e, v := judgeScope{}, AssertionResult{}
		e.compareSides(">=", &sideValue{value: c.left, unit: c.unit}, &sideValue{value: c.right, unit: c.unit}, &v)
		left, right, _ := strings.Cut(strings.NewReplacer(">=", "<").Replace(v.Figures), " < ")
		if c.left != c.right && left == right || math.Abs(float64(len(v.Figures)-len(c.want))) > 2 {
			t.Errorf("%s, want about %s", v.Figures, c.want)
		}
	}
}

// TestBaselinesAndRegionsAreExpanded: collective names are replaced by their members, each once.
func TestBaselinesAndRegionsAreExpanded(t *testing.T) {
	got := expandBaselines([]string{"predictive", "lmetric", "baselines", "random"})
	if len(got) != len(baselines)+2 || got[1] != "lmetric" || got[len(got)-1] != "random" {
		t.Errorf("%v", got)
	}
	e := &Experiment{Places: []RegionLocation{{Name: "x"}, {Name: "y"}, {Name: "z"}}, Small: SmallForm{Places: 2}}
	e.Fleet = []WorkerGroup{{Region: everyRegion, Zone: "a"}, {Region: everyRegion, Zone: "b"}, {Region: "x", Zone: "c"}}
	e.applyDefaults()
	if len(e.Fleet) != 7 {
		t.Errorf("%+v", e.Fleet)
	}
	if e.UseSmallForm(); len(e.Fleet) != 5 || len(e.Places) != 2 {
		t.Errorf("%+v of %v", e.Fleet, e.Places)
	}
}

// TestSimulatorCostIsAFigure: the simulator's cost is a figure with meter, and has a reason otherwise; a thinned
// fleet is smaller.
func TestSimulatorCostIsAFigure(t *testing.T) {
	e := goodExperiment(t)
	e.Seeds, e.Vary, e.Values, e.Meter = 1, "thin", []float64{1, 3}, true
	e.Pass = []Assertion{{Line: "sim_rate(predictive, value=1) > 0"}, {Line: "sim_memory(predictive, value=1) > 0"}}
	r, err := RunExperiment(t.Context(), e, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if processorSeconds() > 0 && !r.Passed {
		t.Errorf("%+v", r.Lines)
	}
	whole, third := r.Cases[0].findRow("predictive", &e.Values[0]), r.Cases[0].findRow("predictive", &e.Values[1])
	if len(whole.WorkerBusy) != 3 || len(third.WorkerBusy) != 1 || third.Sent >= whole.Sent {
		t.Errorf("%d and %d workers, %d and %d requests", len(whole.WorkerBusy), len(third.WorkerBusy), whole.Sent, third.Sent)
	}
	e.Meter = false
	if r, err = RunExperiment(t.Context(), e, Options{}); err != nil || r.Passed || !strings.Contains(r.Lines[0].Figures, "meter: true") {
		t.Errorf("%v: %+v", err, r.Lines)
	}
}
