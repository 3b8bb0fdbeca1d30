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
	all   = flag.Bool("step", false, "make the whole table")
	seeds = flag.Int("seeds", 3, "how many seeds each row is made of")
)

func options() Options {
	return Options{TTL: 30 * time.Second, Resolvers: 2000, Redirect: 0.1, For: 5 * time.Minute, Prompt: 2000, Output: 8, Workers: []int{3, 6, 6}, Seed: 1}
}

// play runs one experiment in a bubble of its own.
func play(t *testing.T, o Options) (r *Result) {
	t.Helper()
	o.Dir = t.TempDir()
	begun := time.Now()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if r, err = Run(context.Background(), o); err != nil {
			t.Fatal(err)
		}
	})
	if r != nil {
		t.Logf("TTL %s seed %d in %s: %+v, served %+v, others' peak %.2f, %d plans, moved %.3f, twice %.3f, %d sent, %d shed, %d late, %d wrong", o.TTL, o.Seed,
			time.Since(begun).Round(time.Second), r.Near, r.Served, r.Far, r.Plans, r.Once, r.Again, r.Sent, r.Shed, r.Late, r.Wrong)
	}
	return r
}

// TestTable is what `make step` runs.
func TestTable(t *testing.T) {
	if !*all {
		t.Skip("the table takes minutes: make step makes it")
	}
	var rows []Row
	for _, c := range []struct {
		name   string
		change func(*Options)
	}{
		{"TTL 30", func(*Options) {}},
		{"TTL 10", func(o *Options) { o.TTL = 10 * time.Second }},
		{"TTL 30, Zipf resolvers", func(o *Options) { o.Zipf = true }},
		{"TTL 10, Poisson arrivals", func(o *Options) { o.TTL, o.Poisson = 10*time.Second, true }},
		{"TTL 20, Poisson, 8.74% keep longer", func(o *Options) { o.TTL, o.Poisson, o.Extend = 20*time.Second, true, true }},
	} {
		row := Row{Name: c.name}
		for seed := range *seeds {
			o := options()
			c.change(&o)
			o.Seed = uint64(seed + 1)
			row.Results = append(row.Results, play(t, o))
		}
		rows = append(rows, row)
	}
	fmt.Println("A step of demand from 0.7 to 1.3 of the first region's capacity, by its resolvers' answers:")
	if err := Print(os.Stdout, rows); err != nil {
		t.Fatal(err)
	}
}

// TestAStepIsTakenCalmly holds what the table shows, at one seed and shorter.
func TestAStepIsTakenCalmly(t *testing.T) {
	o := options()
	o.TTL, o.For, o.Resolvers = 10*time.Second, 4*time.Minute, 1000
	r := play(t, o)
	if r.Near.Over > 30 || r.Near.SD > 0.02 || r.Near.Dip > 0.15 || r.Far > 0.85 || r.Again > 0.05 || r.Plans > 20 || r.Wrong > 0 {
		t.Errorf("%+v", r)
	}
}
