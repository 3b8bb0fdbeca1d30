package spill

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
	all   = flag.Bool("spill", false, "make the whole table")
	seeds = flag.Int("seeds", 3, "how many seeds each row is made of")
)

func options() Options {
	return Options{
		Spill: true, Busy: 0.7, Workers: 6, Prompt: 1500, Output: 50, Before: time.Minute, Halved: time.Minute, After: 40 * time.Second, Seed: 1,
	}
}

func play(t *testing.T, o Options) (r *Result) {
	t.Helper()
	o.Dir = t.TempDir()
	begun := time.Now()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if r, err = Run(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		if err := r.check(); err != nil {
			t.Fatal(err)
		}
	})
	if r != nil {
		t.Logf("seed %d in %s", o.Seed, time.Since(begun).Round(time.Second))
		if err := Print(t.Output(), []Row{{"run", []*Result{r}}}); err != nil {
			t.Error(err)
		}
	}
	return r
}

// TestTable is what `make spill` runs.
func TestTable(t *testing.T) {
	if !*all {
		t.Skip("the table takes minutes: make spill makes it")
	}
	var rows []Row
	for _, c := range []struct {
		name   string
		change func(*Options)
	}{
		{"spill, 0.7 busy", func(*Options) {}},
		{"no spill, 0.7 busy", func(o *Options) { o.Spill = false }},
		{"spill, 0.85 busy", func(o *Options) { o.Busy = 0.85 }},
		{"no spill, 0.85 busy", func(o *Options) { o.Spill, o.Busy = false, 0.85 }},
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
	fmt.Println("A region of three loses half its workers; its clients, by what they saw:")
	if err := Print(os.Stdout, rows); err != nil {
		t.Fatal(err)
	}
}

// TestAHalvedRegionSpills holds what the table shows, shorter: a good part of what the halved region cannot do is done by
// its peers, nobody is refused, few wait for long, hardly anything comes back, and the stream of spills is steady.
func TestAHalvedRegionSpills(t *testing.T) {
	o := options()
	o.Before, o.Halved, o.After, o.Workers = 24*time.Second, 24*time.Second, 0, 2
	r := play(t, o)
	h := &r.Halved
	if 100*h.Failed > h.Sent || 100*r.Others.Failed > r.Others.Sent || 10*h.Away < h.Sent || 7*h.Late > h.Sent || 4*r.Back > h.Away || r.Jumps > 1 {
		t.Errorf("of %d requests %d went away, %d failed, %d were late, %d came back; %d jumps", h.Sent, h.Away, h.Failed, h.Late, r.Back, r.Jumps)
	}
}
