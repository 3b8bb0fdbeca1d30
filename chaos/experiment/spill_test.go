package experiment_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

var allSpillRows = flag.Bool("spill", false, "make the whole table")

func newSpillOptions() spillOptions {
	return spillOptions{
		Spill: true, Busy: 0.7, Workers: 6, Prompt: 1500, Output: 50, Before: time.Minute, Halved: time.Minute, After: 40 * time.Second, Seed: 1,
	}
}

func runSpillInBubble(t *testing.T, o spillOptions) (r *spillResult) {
	t.Helper()
	o.Dir = t.TempDir()
	begun := time.Now()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if r, err = runSpill(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		if err := r.checkRun(); err != nil {
			t.Fatal(err)
		}
	})
	if r != nil {
		t.Logf("seed %d in %s", o.Seed, time.Since(begun).Round(time.Second))
		if err := printSpillTable(t.Output(), []spillRow{{"run", []*spillResult{r}}}); err != nil {
			t.Error(err)
		}
	}
	return r
}

// TestSpillTable is what `make spill` runs.
func TestSpillTable(t *testing.T) {
	if !*allSpillRows {
		t.Skip("the table takes minutes: make spill makes it")
	}
	var rows []spillRow
	for _, c := range []struct {
		name   string
		change func(*spillOptions)
	}{
		{"spill, 0.7 busy", func(*spillOptions) {}},
		{"no spill, 0.7 busy", func(o *spillOptions) { o.Spill = false }},
		{"spill, 0.85 busy", func(o *spillOptions) { o.Busy = 0.85 }},
		{"no spill, 0.85 busy", func(o *spillOptions) { o.Spill, o.Busy = false, 0.85 }},
	} {
		row := spillRow{Name: c.name}
		for seed := range *seedCount {
			o := newSpillOptions()
			c.change(&o)
			o.Seed = uint64(seed + 1)
			row.Results = append(row.Results, runSpillInBubble(t, o))
		}
		rows = append(rows, row)
	}
	fmt.Println("A region of three loses half its workers; its clients, by what they saw:")
	if err := printSpillTable(os.Stdout, rows); err != nil {
		t.Fatal(err)
	}
}

// TestHalvedRegionSpillsToPeers checks the table's results in a shorter run: peers serve a good part of what the
// halved region cannot, no request is refused, few wait long, hardly any spill back, and the rate of spills is
// steady.
func TestHalvedRegionSpillsToPeers(t *testing.T) {
	o := newSpillOptions()
	o.Before, o.Halved, o.After, o.Workers = 24*time.Second, 24*time.Second, 0, 2
	r := runSpillInBubble(t, o)
	h := &r.Halved
	if 100*h.Failed > h.Sent || 100*r.Others.Failed > r.Others.Sent || 10*h.Spilled < h.Sent || 7*h.Late > h.Sent || 4*r.ServedForOthers > h.Spilled || r.Jumps > 1 {
		t.Errorf("of %d requests %d went away, %d failed, %d were late, %d came back; %d jumps", h.Sent, h.Spilled, h.Failed, h.Late, r.ServedForOthers, r.Jumps)
	}
}
