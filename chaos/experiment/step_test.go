package experiment_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/chaos/experiment"
)

var (
	allStepRows = flag.Bool("step", false, "make the whole table of a step of demand: make step")
	seedCount   = flag.Int("seeds", 3, "how many seeds each row is made of")
)

func newStepOptions() stepOptions {
	return stepOptions{TTL: 30 * time.Second, Resolvers: 2000, Redirect: 0.1, For: 5 * time.Minute, Prompt: 2000, Output: 8, Workers: []int{3, 6, 6}, Seed: 1}
}

// runStepInBubble runs one experiment in a bubble.
func runStepInBubble(t *testing.T, o stepOptions) (r *experiment.StepResult) {
	t.Helper()
	o.Dir = t.TempDir()
	begun := time.Now()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if r, err = runStep(context.Background(), o); err != nil {
			t.Fatal(err)
		}
	})
	if r != nil {
		t.Logf("TTL %s seed %d in %s: %+v, served %+v, others' peak %.2f, %d plans, moved %.3f, again %.3f, %d sent, %d shed, %d late, %d wrong", o.TTL, o.Seed,
			time.Since(begun).Round(time.Second), r.First, r.Served, r.MaxOther, r.Plans, r.MovedOnce, r.MovedAgain, r.Sent, r.Shed, r.Late, r.BadAnswers)
	}
	return r
}

// TestStepTable is what `make step` runs.
func TestStepTable(t *testing.T) {
	if !*allStepRows {
		t.Skip("the table takes minutes: make step makes it")
	}
	var rows []experiment.StepRow
	for _, c := range []struct {
		name   string
		change func(*stepOptions)
	}{
		{"TTL 30", func(*stepOptions) {}},
		{"TTL 10", func(o *stepOptions) { o.TTL = 10 * time.Second }},
		{"TTL 30, Zipf resolvers", func(o *stepOptions) { o.Zipf = true }},
		{"TTL 10, Poisson arrivals", func(o *stepOptions) { o.TTL, o.Poisson = 10*time.Second, true }},
		{"TTL 20, Poisson, 8.74% keep longer", func(o *stepOptions) { o.TTL, o.Poisson, o.ExtendTTL = 20*time.Second, true, true }},
	} {
		row := experiment.StepRow{Name: c.name}
		for seed := range *seedCount {
			o := newStepOptions()
			c.change(&o)
			o.Seed = uint64(seed + 1)
			row.Results = append(row.Results, runStepInBubble(t, o))
		}
		rows = append(rows, row)
	}
	fmt.Println("A step of demand from 0.7 to 1.3 of the first region's capacity, by its resolvers' answers:")
	if err := experiment.PrintSteps(os.Stdout, rows); err != nil {
		t.Fatal(err)
	}
}

// TestStepSettlesWithoutOscillation checks the table's results, with one seed and a shorter run.
func TestStepSettlesWithoutOscillation(t *testing.T) {
	o := newStepOptions()
	o.TTL, o.For, o.Resolvers = 10*time.Second, 4*time.Minute, 1000
	r := runStepInBubble(t, o)
	if r.First.OverSeconds > 30 || r.First.SD > 0.02 || r.First.Undershoot > 0.15 || r.MaxOther > 0.85 || r.MovedAgain > 0.05 || r.Plans > 20 || r.BadAnswers > 0 {
		t.Errorf("%+v", r)
	}
}
