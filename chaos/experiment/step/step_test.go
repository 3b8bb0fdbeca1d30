package step

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

var (
	allRows   = flag.Bool("step", false, "make the whole table")
	seedCount = flag.Int("seeds", 3, "how many seeds each row is made of")
)

func testOptions() Options {
	return Options{TTL: 30 * time.Second, Resolvers: 2000, Redirect: 0.1, For: 5 * time.Minute, Prompt: 2000, Output: 8, Workers: []int{3, 6, 6}, Seed: 1}
}

// runInBubble runs one experiment in a bubble.
func runInBubble(t *testing.T, o Options) (r *StepResult) {
	t.Helper()
	o.Dir = t.TempDir()
	begun := time.Now()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if r, err = RunStep(context.Background(), o); err != nil {
			t.Fatal(err)
		}
	})
	if r != nil {
		t.Logf("TTL %s seed %d in %s: %+v, served %+v, others' peak %.2f, %d plans, moved %.3f, again %.3f, %d sent, %d shed, %d late, %d wrong", o.TTL, o.Seed,
			time.Since(begun).Round(time.Second), r.First, r.Served, r.MaxOther, r.Plans, r.MovedOnce, r.MovedAgain, r.Sent, r.Shed, r.Late, r.BadAnswers)
	}
	return r
}

// TestTable is what `make step` runs.
func TestTable(t *testing.T) {
	if !*allRows {
		t.Skip("the table takes minutes: make step makes it")
	}
	var rows []SetupRow
	for _, c := range []struct {
		name   string
		change func(*Options)
	}{
		{"TTL 30", func(*Options) {}},
		{"TTL 10", func(o *Options) { o.TTL = 10 * time.Second }},
		{"TTL 30, Zipf resolvers", func(o *Options) { o.Zipf = true }},
		{"TTL 10, Poisson arrivals", func(o *Options) { o.TTL, o.Poisson = 10*time.Second, true }},
		{"TTL 20, Poisson, 8.74% keep longer", func(o *Options) { o.TTL, o.Poisson, o.ExtendTTL = 20*time.Second, true, true }},
	} {
		row := SetupRow{Name: c.name}
		for seed := range *seedCount {
			o := testOptions()
			c.change(&o)
			o.Seed = uint64(seed + 1)
			row.Results = append(row.Results, runInBubble(t, o))
		}
		rows = append(rows, row)
	}
	fmt.Println("A step of demand from 0.7 to 1.3 of the first region's capacity, by its resolvers' answers:")
	if err := PrintTable(os.Stdout, rows); err != nil {
		t.Fatal(err)
	}
}

// TestStepSettlesWithoutOscillation checks the table's results, with one seed and a shorter run.
func TestStepSettlesWithoutOscillation(t *testing.T) {
	o := testOptions()
	o.TTL, o.For, o.Resolvers = 10*time.Second, 4*time.Minute, 1000
	r := runInBubble(t, o)
	if r.First.OverSeconds > 30 || r.First.SD > 0.02 || r.First.Undershoot > 0.15 || r.MaxOther > 0.85 || r.MovedAgain > 0.05 || r.Plans > 20 || r.BadAnswers > 0 {
		t.Errorf("%+v", r)
	}
}
