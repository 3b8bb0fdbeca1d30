package soak

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/spillway-lb/spillway/chaos/drill"
	"github.com/spillway-lb/spillway/chaos/drill/virtual"
)

// judgedInvariants hold under any faults. The others compare figures of few requests (I-19, I-20, I-32), need a healthy
// node at the right place (I-2, I-23, which drills of the catalogue judge), or are not observable in the simulator.
var judgedInvariants = []string{"I-1", "I-3", "I-4", "I-5", "I-12", "I-13", "I-14", "I-15", "I-16", "I-18", "I-31"}

// SeedResult is the run of one seed.
type SeedResult struct {
	Seed uint64
	// Broken describes each broken invariant and each fault that was not cleared; empty: the seed passed.
	Broken []string
	// Checked counts the compared facts.
	Checked int
	// Requests counts the requests that were due, Harmed those of them without a complete answer.
	Requests, Harmed int
}

// RunSeed runs the drill of a seed and judges it.
func RunSeed(ctx context.Context, seed uint64) (SeedResult, error) {
	res := SeedResult{Seed: seed}
	f := MakeDrill(seed)
	l, err := virtual.Run(ctx, f, virtual.Config{Seed: seed, Version: "soak"})
	if err != nil {
		return res, fmt.Errorf("seed %d: %w", seed, err)
	}
	v := drill.Judge(f, l)
	res.Requests, res.Harmed = v.Due, len(v.Harmed)
	for _, in := range v.Invariants {
		if !slices.Contains(judgedInvariants, in.ID) {
			continue
		}
		res.Checked += in.Checked
		if in.Status == drill.InvariantBroken {
			res.Broken = append(res.Broken, fmt.Sprintf("%s (%s): %s", in.ID, in.Title, in.First))
		}
	}
	for _, c := range v.Clearing {
		if !c.Holds {
			res.Broken = append(res.Broken, c.String())
		}
	}
	if res.Checked == 0 {
		res.Broken = append(res.Broken, "no invariant compared anything")
	}
	return res, nil
}

// ReplayCommand is the command that runs a seed again and prints its drill.
func ReplayCommand(seed uint64) string {
	return fmt.Sprintf("spillway drill soak --from %d --seeds 1 --show", seed)
}

// Totals are the sums of a soak.
type Totals struct {
	Seeds, Failed, Checked, Requests, Harmed int
}

// RunSeeds runs consecutive seeds, several at a time, and passes the results to a function in the order of the seeds. It ends with
// the first error, or when the function returns false.
func RunSeeds(ctx context.Context, from uint64, seeds, parallel int, onResult func(SeedResult) bool) (t Totals, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		res SeedResult
		err error
	}
	parallel = max(min(parallel, seeds), 1)
	queue := make(chan chan outcome, parallel)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		defer close(queue)
		for i := range seeds {
			out := make(chan outcome, 1)
			select {
			case queue <- out:
			case <-ctx.Done():
				return
			}
			running.Go(func() {
				res, err := RunSeed(ctx, from+uint64(i))
				out <- outcome{res, err}
			})
		}
	})
	for out := range queue {
		o := <-out
		if o.err != nil {
			return t, o.err
		}
		t.Seeds++
		t.Checked += o.res.Checked
		t.Requests += o.res.Requests
		t.Harmed += o.res.Harmed
		if len(o.res.Broken) > 0 {
			t.Failed++
		}
		if !onResult(o.res) {
			return t, nil
		}
	}
	return t, ctx.Err()
}
