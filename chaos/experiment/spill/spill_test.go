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
	allRows   = flag.Bool("spill", false, "make the whole table")
	seedCount = flag.Int("seeds", 3, "how many seeds each row is made of")
)

func testOptions() Options {
	return Options{
		Spill: true, Busy: 0.7, Workers: 6, Prompt: 1500, Output: 50, Before: time.Minute, Halved: time.Minute, After: 40 * time.Second, Seed: 1,
	}
}

func runInBubble(t *testing.T, o Options) (r *SpillResult) {
	t.Helper()
	o.Dir = t.TempDir()
	begun := time.Now()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if r, err = RunSpill(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		if err := r.checkRun(); err != nil {
			t.Fatal(err)
		}
	})
	if r != nil {
		t.Logf("seed %d in %s", o.Seed, time.Since(begun).Round(time.Second))
		if err := PrintTable(t.Output(), []RunRow{{"run", []*SpillResult{r}}}); err != nil {
			t.Error(err)
		}
	}
	return r
}

// TestTable is what `make spill` runs.
func TestTable(t *testing.T) {
	if !*allRows {
		t.Skip("the table takes minutes: make spill makes it")
	}
	var rows []RunRow
	for _, c := range []struct {
		name   string
		change func(*Options)
	}{
		{"spill, 0.7 busy", func(*Options) {}},
		{"no spill, 0.7 busy", func(o *Options) { o.Spill = false }},
		{"spill, 0.85 busy", func(o *Options) { o.Busy = 0.85 }},
		{"no spill, 0.85 busy", func(o *Options) { o.Spill, o.Busy = false, 0.85 }},
	} {
		row := RunRow{Name: c.name}
		for seed := range *seedCount {
			o := testOptions()
			c.change(&o)
			o.Seed = uint64(seed + 1)
			row.Results = append(row.Results, runInBubble(t, o))
		}
		rows = append(rows, row)
	}
	fmt.Println("A region of three loses half its workers; its clients, by what they saw:")
	if err := PrintTable(os.Stdout, rows); err != nil {
		t.Fatal(err)
	}
}

// TestHalvedRegionSpillsToPeers checks the table's results in a shorter run: peers serve a good part of what the
// halved region cannot, no request is refused, few wait long, hardly any spill back, and the rate of spills is
// steady.
func TestHalvedRegionSpillsToPeers(t *testing.T) {
	o := testOptions()
	o.Before, o.Halved, o.After, o.Workers = 24*time.Second, 24*time.Second, 0, 2
	r := runInBubble(t, o)
	h := &r.Halved
	if 100*h.Failed > h.Sent || 100*r.Others.Failed > r.Others.Sent || 10*h.Spilled < h.Sent || 7*h.Late > h.Sent || 4*r.ServedForOthers > h.Spilled || r.Jumps > 1 {
		t.Errorf("of %d requests %d went away, %d failed, %d were late, %d came back; %d jumps", h.Sent, h.Spilled, h.Failed, h.Late, r.ServedForOthers, r.Jumps)
	}
}
