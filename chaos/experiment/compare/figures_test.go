package compare

import (
	"bytes"
	"context"
	"flag"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/testkit"
)

var virtualFlags = flag.String("virtual", "", "compare in virtual time, with these flags of the program, such as \"-seeds 3\"")

// TestVirtual is what `make compare` runs: whole zones in virtual time, so that a busy machine does not change the
// figures.
func TestVirtual(t *testing.T) {
	if *virtualFlags == "" {
		t.Skip("a comparison takes minutes: make compare runs it")
	}
	o := newVirtualOptions(t, strings.Fields(*virtualFlags)...)
	if err := compareAll(o); err != nil {
		t.Fatal(err)
	}
}

// newVirtualOptions makes every run use a bubble and a network of its own.
func newVirtualOptions(t *testing.T, flags ...string) *compareOptions {
	t.Helper()
	o, err := parseFlags(flags)
	if err != nil {
		t.Fatal(err)
	}
	o.runInBubble = func(run func(context.Context, *fleet.MemoryNetwork) error) (err error) {
		synctest.Test(t, func(t *testing.T) { err = run(t.Context(), &fleet.MemoryNetwork{}) })
		return err
	}
	return o
}

func TestFlagsAreChecked(t *testing.T) {
	for _, bad := range [][]string{{"-policies", "best"}, {"-seeds", "0"}, {"-busy", "0"}, {"-busy", "NaN"}, {"-nonsense"}} {
		if _, err := parseFlags(bad); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
	o, err := parseFlags([]string{"-policies", "all"})
	if err != nil || len(o.policies) < 10 {
		t.Fatalf("%v %v", o, err)
	}
}

// TestCapacityFollowsTheEngine: capacity grows with the GPU and agrees with the engine's own figures.
func TestCapacityFollowsTheEngine(t *testing.T) {
	o, _ := parseFlags(nil)
	small, err := measureCapacity(o)
	if err != nil {
		t.Fatal(err)
	}
	o.gpu = "H100"
	large, err := measureCapacity(o)
	if err != nil || small < 1 || small > 6 || large < 5*small {
		t.Errorf("an L4 does %.2f requests/s, an H100 %.2f (%v)", small, large, err)
	}
}

// TestOneRunPrintsItsRow runs a short healthy run over the real stack and prints its row.
func TestOneRunPrintsItsRow(t *testing.T) {
	o := newVirtualOptions(t, "-for", "2s", "-gpu", "H100")
	var r *policyResult
	err := o.runIsolated(func(ctx context.Context) (err error) {
		r, err = playRun(ctx, o, policyRun{policy: "predictive", seed: 1, rate: 10, span: o.arrivalSpan, workers: 2, health: true})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &policySummary{policy: "predictive", slo: time.Minute, workers: 2}
	s.addRun(r)
	if w := s.runs[0]; w.sent < 5 || w.ok != w.sent || w.errors+w.refused > 0 || r.requestsByWorker[0]+r.requestsByWorker[1] < uint64(w.sent) {
		t.Errorf("%+v %v", w, s.failures)
	}
	var out bytes.Buffer
	printSummaries(&out, []*policySummary{s}, true)
	if text := out.String(); !strings.Contains(text, "W2 slow") || !strings.Contains(text, "predictive") {
		t.Error(text)
	}
}

// TestLateRunIsMarked: the figures of a run that could not send on time are marked.
func TestLateRunIsMarked(t *testing.T) {
	for lag, want := range map[time.Duration]bool{10 * time.Millisecond: false, time.Second: true} {
		s := &policySummary{slo: time.Second, workers: 1}
		s.addRun(&policyResult{span: time.Second, requestsByWorker: []uint64{1}, lag: lag, outcomes: []load.RequestOutcome{{Kind: "ok"}}})
		var out bytes.Buffer
		printSummaries(&out, []*policySummary{s}, false)
		if got := strings.Contains(out.String(), "INVALID"); got != want {
			t.Errorf("with a lag of %v: %s", lag, out.String())
		}
	}
}

func TestOutcomesAreCountedOnce(t *testing.T) {
	s := &policySummary{slo: time.Second, workers: 1}
	due := time.Unix(100, 0)
	s.addRun(&policyResult{span: 2 * time.Second, requestsByWorker: []uint64{4}, outcomes: []load.RequestOutcome{
		{Kind: "ok", Due: due, First: due.Add(time.Second / 2)},
		{Kind: "ok", Due: due, First: due.Add(3 * time.Second)},
		{Kind: "refused", Status: 503, Code: "no_capacity"},
		{Kind: "cut", Code: "upstream_lost"},
	}})
	w := s.runs[0]
	if w.sent != 4 || w.ok != 2 || w.refused != 1 || w.errors != 1 || w.goodput != 0.5 || w.p99 != 3*time.Second {
		t.Errorf("%+v", w)
	}
	if got := s.listFailures(); got != "1 cut upstream_lost, 1 refused 503 no_capacity" {
		t.Error(got)
	}
}

// TestFloodBarelySlowsLightTenant: over the real stack and in virtual time, a tenant with a quarter of a zone's
// capacity loses nothing next to one with five times the capacity, and waits little longer; the flood gets the rest.
func TestFloodBarelySlowsLightTenant(t *testing.T) {
	testkit.SoakOnly(t, "local.TestFloodBarelySlowsLightTenantOnEveryGPU")
	o := newVirtualOptions(t, "-for", "100s")
	each, err := measureCapacity(o)
	if err != nil {
		t.Fatal(err)
	}
	var light, flood [2]*policyResult
	for i := range light {
		err := o.runIsolated(func(ctx context.Context) (err error) {
			light[i], flood[i], err = runLightTenant(ctx, o, 1, each*fairnessWorkers, i == 1)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	alone, next := sortedTTFTs(light[0]), sortedTTFTs(light[1])
	t.Log(formatSlowdown(alone, next))
	served := float64(len(sortedTTFTs(flood[1]))) / (o.arrivalSpan - floodDelay).Seconds()
	if len(next) != len(light[1].outcomes) || quantileOf(next, 0.99) > quantileOf(alone, 0.99)*3/2 || served < each*fairnessWorkers*(1-lightLoadShare) {
		t.Errorf("%d of %d answered; %s; %.1f/s of the flood", len(next), len(light[1].outcomes), formatSlowdown(alone, next), served)
	}
}

// TestFaultyWorkersHarmPredictiveLeast: with three faulty workers of eight, predictive answers at least as many
// requests in time as the policies that use no state or only counts, and sends the slow worker the least. Five runs
// of one load are summed: the order of goroutines changes the slow worker's share in one run by a third.
func TestFaultyWorkersHarmPredictiveLeast(t *testing.T) {
	testkit.SoakOnly(t, "experiment.TestSmallFormsKeepTheirAssertions")
	o := newVirtualOptions(t, "-for", "40s")
	each, err := measureCapacity(o)
	if err != nil {
		t.Fatal(err)
	}
	const runs = 5
	good, slow := map[string]float64{}, map[string]int{}
	for _, p := range o.policies {
		s := &policySummary{policy: p, slo: o.slo, workers: o.workers}
		for range runs {
			err := o.runIsolated(func(ctx context.Context) error {
				r, err := playRun(ctx, o, policyRun{policy: p, seed: 1, rate: each * float64(o.workers) * o.loadShare, span: o.arrivalSpan, faults: true, health: true, workers: o.workers})
				if err == nil {
					s.addRun(r)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range s.runs {
			good[p] += r.goodput / runs
			slow[p] += int(r.requestsByWorker[slowWorker])
			t.Logf("%s: %+v", p, r)
		}
	}
	for p := range good {
		if good["predictive"] < 0.97*good[p] || p != "predictive" && slow["predictive"] > slow[p] {
			t.Errorf("predictive answers %.1f/s in time and gives the slow worker %d, %s %.1f/s and %d", good["predictive"], slow["predictive"], p, good[p], slow[p])
		}
	}
}
