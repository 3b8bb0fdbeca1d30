package main

import (
	"context"
	"flag"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/spillway-lb/spillway/chaos/memnet"
)

var virtual = flag.String("virtual", "", "compare in virtual time, with these flags of the program, such as \"-seeds 3\"")

// TestVirtual is what `make compare` runs: whole zones in virtual time, so that a busy machine cannot spoil the figures.
func TestVirtual(t *testing.T) {
	if *virtual == "" {
		t.Skip("a comparison takes minutes: make compare runs it")
	}
	o := inVirtualTime(t, strings.Fields(*virtual)...)
	if err := compare(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// inVirtualTime has every run live in a bubble, on a network of its own.
func inVirtualTime(t *testing.T, flags ...string) *options {
	t.Helper()
	o, err := parse(flags)
	if err != nil {
		t.Fatal(err)
	}
	o.oneByOne = true
	o.bubble = func(run func(context.Context, *memnet.Net) error) (err error) {
		synctest.Test(t, func(t *testing.T) { err = run(t.Context(), &memnet.Net{}) })
		return err
	}
	return o
}

// TestAFloodIsNoticedLittle: over the real stack and in virtual time, a tenant that asks for a quarter of a zone loses
// nothing next to one that asks for five times the zone, and waits little longer; and the flood gets what is left.
func TestAFloodIsNoticedLittle(t *testing.T) {
	o := inVirtualTime(t, "-for", "100s")
	each, err := capacity(o)
	if err != nil {
		t.Fatal(err)
	}
	var light, flood [2]*result
	for i := range light {
		err := o.run(t.Context(), func(ctx context.Context) (err error) {
			light[i], flood[i], err = beside(ctx, o, 1, each*fairWorkers, i == 1)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	alone, next := first(light[0]), first(light[1])
	t.Log(ratio(alone, next))
	served := float64(len(first(flood[1]))) / (o.span - quiet).Seconds()
	if len(next) != len(light[1].outcomes) || quantile(next, 0.99) > quantile(alone, 0.99)*3/2 || served < each*fairWorkers*(1-lightPart) {
		t.Errorf("%d of %d answered; %s; %.1f/s of the flood", len(next), len(light[1].outcomes), ratio(alone, next), served)
	}
}

// TestIllWorkersHarmPredictiveLeast: three of eight workers fall ill; predictive answers at least as many in time as the
// policies that look at nothing or at counts alone, and sends the slow worker the least. Five runs of one load are
// summed: the order in which goroutines run moves what one run gives the slow worker by a third.
func TestIllWorkersHarmPredictiveLeast(t *testing.T) {
	o := inVirtualTime(t, "-for", "40s")
	each, err := capacity(o)
	if err != nil {
		t.Fatal(err)
	}
	const runs = 5
	good, slow := map[string]float64{}, map[string]int{}
	for _, p := range o.policies {
		s := &sum{policy: p, slo: o.slo, workers: o.workers}
		for range runs {
			err := o.run(t.Context(), func(ctx context.Context) error {
				r, err := play(ctx, o, trial{policy: p, seed: 1, rate: each * float64(o.workers) * o.busy, span: o.span, faults: true, health: true, workers: o.workers})
				if err == nil {
					s.add(r)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range s.runs {
			good[p] += r.good / runs
			slow[p] += int(r.taken[slowed])
			t.Logf("%s: %+v", p, r)
		}
	}
	for p := range good {
		if good["predictive"] < 0.97*good[p] || p != "predictive" && slow["predictive"] > slow[p] {
			t.Errorf("predictive answers %.1f/s in time and gives the slow worker %d, %s %.1f/s and %d", good["predictive"], slow["predictive"], p, good[p], slow[p])
		}
	}
}
