package lab

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/sim"
)

// TestKnee: values are parts of what a policy sustains that need not be run, a threshold is what is under way there, and a knee
// that lies outside the search is no load at all.
func TestKnee(t *testing.T) {
	e := good(t)
	e.Seeds, e.Values = 1, []float64{0.5, 2}
	e.Workload.Repeat = true
	e.Knee = Knee{Policy: "least_connections", Case: "free", Search: Capacity{From: 1, To: 200, Attainment: .99, Within: .2}}
	e.Cases = []Case{{Name: "free"}, {Name: "hard", Threshold: 0.5, Anonymous: true}}
	e.Pass = []Line{{Line: "attainment(predictive, free, value=0.5) >= 99%"}, {Line: "missed(predictive, hard, value=2) > 10%"}}
	r, err := Run(t.Context(), e, Options{})
	if err != nil {
		t.Fatal(err)
	}
	knee := r.Cases[0].Knee
	if knee == nil || knee.Value <= 1 || knee.Value >= 200 || knee.Busy <= 0 || r.Cases[1].Knee.Case != "free" {
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
	if err := r.Print(&text); err != nil || !strings.Contains(text.String(), "the most that least_connections sustains") {
		t.Errorf("%v: %s", err, text.String())
	}
	if err := r.Page(&page); err != nil || !strings.Contains(page.String(), "the most that least_connections sustains") {
		t.Errorf("%v: %s", err, page.String())
	}
	for _, bounds := range [][2]float64{{150, 200}, {0.5, 1}} {
		e.Knee.Search.From, e.Knee.Search.To = bounds[0], bounds[1]
		if _, err := Run(t.Context(), e, Options{}); err == nil || !strings.Contains(err.Error(), "hint: ") {
			t.Errorf("a knee outside %v: %v", bounds, err)
		}
	}
}

// TestShortTraceWarns: a trace that ends early is told of wherever its figures are shown, and one that begins anew does not end.
func TestShortTraceWarns(t *testing.T) {
	e := good(t)
	e.Seeds, e.Values = 1, []float64{40} // 400 requests in 10 of 20 s
	for _, repeat := range []bool{false, true} {
		e.Workload.Repeat = repeat
		r, err := Run(t.Context(), e, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := r.Print(&b); err != nil || strings.Contains(b.String(), "the trace ends at") == repeat {
			t.Errorf("repeat %v: %v: %s", repeat, err, b.String())
		}
	}
}

// TestRecovery: it is the end of the last stretch that is worse than before, from what broke or was mended last before it.
func TestRecovery(t *testing.T) {
	r := &sim.Result{Window: 90 * time.Second, Faults: []sim.Fault{{At: 30 * time.Second, For: 20 * time.Second}}}
	for range 100 {
		r.Seconds = append(r.Seconds, sim.Second{Sent: 100, Good: 99})
	}
	want := func(seconds float64) {
		t.Helper()
		if got, why := recovery(r); got != seconds || why != "" {
			t.Errorf("%v s (%s), want %v", got, why, seconds)
		}
	}
	want(0)
	r.Seconds[20].Good = 0 // before anything broke
	r.Seconds[25].Good = 90
	want(0)
	for s := 31; s < 35; s++ {
		r.Seconds[s].Good = 50
	}
	want(7) // the last bad second is in the stretch that ends two seconds later
	for s := 50; s < 62; s++ {
		r.Seconds[s].Good = 10
	}
	want(14)
	r.Faults = nil
	if _, why := recovery(r); why == "" {
		t.Error("nothing broke, and it took time to mend")
	}
}

// TestStruck: what falls due at what breaks, in its first ten seconds, is a fault's share of its region's requests.
func TestStruck(t *testing.T) {
	r := &sim.Result{
		Regions: []sim.Part{{Name: "a", Counts: sim.Counts{Sent: 3000}}, {Name: "b", Counts: sim.Counts{Sent: 7000}}},
		Workers: []sim.WorkerResult{{Region: "a", Zone: "x"}, {Region: "a", Zone: "y"}, {Region: "a", Zone: "y"}, {Region: "b", Zone: "x"}},
	}
	r.Measured.Sent = 10_000
	for range 100 {
		r.Seconds = append(r.Seconds, sim.Second{Sent: 100})
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
		if got, why := struck(r); math.Abs(got-c.want) > 1e-12 || why != "" {
			t.Errorf("%+v strikes %v (%s), want %v", c.fault, got, why, c.want)
		}
	}
	r.Faults = nil
	if _, why := struck(r); why == "" {
		t.Error("nothing broke, and something was struck")
	}
}

// TestFiguresThatDifferLookSo: two sides that are not equal are told apart.
func TestFiguresThatDifferLookSo(t *testing.T) {
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
		e, v := env{}, Verdict{}
		e.compare(">=", &amount{v: c.left, unit: c.unit}, &amount{v: c.right, unit: c.unit}, &v)
		left, right, _ := strings.Cut(strings.NewReplacer(">=", "<").Replace(v.Figures), " < ")
		if c.left != c.right && left == right || math.Abs(float64(len(v.Figures)-len(c.want))) > 2 {
			t.Errorf("%s, want about %s", v.Figures, c.want)
		}
	}
}

// TestBaselinesAndPlaces: common names stand for what they say, each once.
func TestBaselinesAndPlaces(t *testing.T) {
	got := spelled([]string{"predictive", "lmetric", "baselines", "random"})
	if len(got) != len(baselines)+2 || got[1] != "lmetric" || got[len(got)-1] != "random" {
		t.Errorf("%v", got)
	}
	e := &Experiment{Places: []Place{{Name: "x"}, {Name: "y"}, {Name: "z"}}, Small: Small{Places: 2}}
	e.Fleet = []Group{{Region: everyPlace, Zone: "a"}, {Region: everyPlace, Zone: "b"}, {Region: "x", Zone: "c"}}
	e.complete()
	if len(e.Fleet) != 7 {
		t.Errorf("%+v", e.Fleet)
	}
	if e.Reduce(); len(e.Fleet) != 5 || len(e.Places) != 2 {
		t.Errorf("%+v of %v", e.Fleet, e.Places)
	}
}

// TestMeter: what the simulator took is a figure where that is asked for, and says why it is none elsewhere; a thinned fleet is a
// smaller one.
func TestMeter(t *testing.T) {
	e := good(t)
	e.Seeds, e.Vary, e.Values, e.Meter = 1, "thin", []float64{1, 3}, true
	e.Pass = []Line{{Line: "sim_rate(predictive, value=1) > 0"}, {Line: "sim_memory(predictive, value=1) > 0"}}
	r, err := Run(t.Context(), e, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if processorSeconds() > 0 && !r.Passed {
		t.Errorf("%+v", r.Lines)
	}
	whole, third := r.Cases[0].row("predictive", &e.Values[0]), r.Cases[0].row("predictive", &e.Values[1])
	if len(whole.Busy) != 3 || len(third.Busy) != 1 || third.Sent >= whole.Sent {
		t.Errorf("%d and %d workers, %d and %d requests", len(whole.Busy), len(third.Busy), whole.Sent, third.Sent)
	}
	e.Meter = false
	if r, err = Run(t.Context(), e, Options{}); err != nil || r.Passed || !strings.Contains(r.Lines[0].Figures, "meter: true") {
		t.Errorf("%v: %+v", err, r.Lines)
	}
}
