package main

import (
	"context"
	"flag"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/spillway-lb/spillway/chaos/fleet"
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
	if err := compareAll(t.Context(), o); err != nil {
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
	o.oneByOne = true
	o.runInBubble = func(run func(context.Context, *fleet.MemoryNetwork) error) (err error) {
		synctest.Test(t, func(t *testing.T) { err = run(t.Context(), &fleet.MemoryNetwork{}) })
		return err
	}
	return o
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
		err := o.runIsolated(t.Context(), func(ctx context.Context) (err error) {
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
			err := o.runIsolated(t.Context(), func(ctx context.Context) error {
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
