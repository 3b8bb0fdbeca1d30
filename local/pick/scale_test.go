package pick

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/inflight"
	"github.com/spillway-lb/spillway/local/perfmodel"
	"github.com/spillway-lb/spillway/local/prefix"
)

// BenchmarkChooseScale places requests of 1,000 tokens one after the other in zones of 1 to 4,096 workers, and has each
// answer end after as many placements as the zone has in flight: the choice with all that it costs to keep the view
// current. In an idle zone 64 requests are in flight at most, as behind 64 connections; in a busy one, four for each
// worker. All prompts begin with the same 2,000 bytes, which every worker soon holds.
func BenchmarkChooseScale(b *testing.B) {
	for _, load := range []string{"idle", "busy"} {
		for _, workers := range []int{1, 10, 100, 1000, 4096} {
			b.Run(fmt.Sprintf("%s/%d", load, workers), func(b *testing.B) {
				open := min(64, 2*workers)
				if load == "busy" {
					open = 4 * workers
				}
				benchmarkScale(b, workers, open)
			})
		}
	}
}

func benchmarkScale(b *testing.B, workers, open int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	v, l := newScaleFleet(workers)
	rng := testRNG()
	heads := make([]uint64, 64) // the second halves of prompts
	for i := range heads {
		heads[i] = rng.Uint64()
	}
	prompt := make([]byte, 4000)
	blocks := make([][]uint64, len(heads))
	for i := range blocks {
		for at := 2000; at < len(prompt); at++ {
			prompt[at] = byte(heads[i] >> (at % 57))
		}
		blocks[i] = blockhash.AppendBlockHashes(nil, 1, prompt)
	}
	entries := make([]inflight.LedgerEntry, open)
	now := testStart
	q := &PlacementQuery{PromptTokens: 1000, PromptBytes: int64(len(prompt)), OutputTokens: 300, MaxWait: time.Second}
	var used time.Duration // CPU time of choices
	timed := 0
	place := func(i int) {
		now = now.Add(20 * time.Microsecond)
		e := &entries[i%open]
		l.FinishRequest(e, now)
		if half := &entries[(i+open/2)%open]; open > 1 {
			l.RecordFirstByte(half, now)
		}
		q.Blocks = blocks[rng.IntN(len(blocks))]
		before := time.Duration(-1)
		if i%8 == 0 {
			before = testkit.ThreadTime()
		}
		c, ok := ChooseWorker(q, v, now, rng, nil)
		if before >= 0 {
			used += testkit.ThreadTime() - before
			timed++
		}
		if !ok {
			b.Fatal(c.Reason)
		}
		v.Index.InsertPrompt(c.ID, q.Blocks)
		w := &v.Workers[c.Index]
		*e = l.DispatchPrompt(c.ID, w.Rates.PrefillWork(1000, c.CachedTokens), q.KVTokens(), w.KVTotal, q.PromptPrefix(), now)
	}
	for i := range 4 * open {
		place(i)
	}
	used, timed = 0, 0
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		place(i)
	}
	b.ReportMetric(float64(used.Nanoseconds())/float64(max(timed, 1)), "cpu-ns/choice")
}

// newScaleFleet returns n workers of four GPU types in random order, each with arrivals of its own.
func newScaleFleet(n int) (*WorkerView, *inflight.Ledger) {
	l, rng := inflight.NewLedger(), rand.New(rand.NewPCG(3, 4))
	types := []string{"L4", "A100", "H100", "H200"}
	ws := make([]WorkerSnapshot, n)
	for i := range ws {
		p := perfmodel.EstimatePrior(types[rng.IntN(len(types))], "llama-3.1-8b")
		id, _ := l.AddWorker()
		ws[i] = WorkerSnapshot{
			ID: id, Name: fmt.Sprintf("w%04d", i), Share: 1, Weight: 1, Rates: p.Rates, KVTotal: p.KVTotal, Slots: 256, MaxContext: 131072,
			QueueingFactor: rng.Float64(),
		}
	}
	return NewWorkerView(ws, l, prefix.NewIndex(256<<20), Predictive), l
}
