package inflight

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/local/perfmodel"
	"pgregory.net/rapid"
)

var testStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestOldestPrefillDecaysButNeverToZero(t *testing.T) {
	l := NewLedger()
	id, _ := l.AddWorker()
	a := l.DispatchRequest(id, 1000, 0, 0, testStart)
	b := l.DispatchRequest(id, 500, 0, 0, testStart)
	for _, c := range []struct {
		after time.Duration
		want  int64
	}{{0, 1500}, {100 * time.Millisecond, 1400}, {time.Hour, 550}} {
		if got := l.ReadLoad(id, 1000, testStart.Add(c.after)).Backlog; got != c.want {
			t.Errorf("after %v the backlog is %d, want %d", c.after, got, c.want)
		}
	}
	now := testStart.Add(time.Second)
	l.RecordFirstByte(&b, now) // out of order: the engine took both in one step
	if got := l.ReadLoad(id, 1000, now).Backlog; got != 50 {
		t.Errorf("backlog is %d after the second's first byte, want the last 50 tokens, which time alone does not finish", got)
	}
	l.RecordFirstByte(&a, now)
	l.RecordFirstByte(&a, now)
	if got := l.ReadLoad(id, 1000, now); got.Backlog != 0 || got.Running != 2 {
		t.Errorf("load is %+v, want no backlog and 2 running", got)
	}
}

func TestEntryOfDroppedWorkerChangesNothing(t *testing.T) {
	l := NewLedger()
	id, _ := l.AddWorker()
	old := l.DispatchRequest(id, 100, 200, 0, testStart)
	l.DropWorker(id)
	again, _ := l.AddWorker()
	if again != id {
		t.Fatalf("slot %d was not used again: got %d", id, again)
	}
	fresh := l.DispatchRequest(again, 10, 20, 0, testStart)
	l.RecordFirstByte(&old, testStart)
	l.FinishRequest(&old, testStart)
	if got := l.ReadLoad(again, 1, testStart); got.Running != 1 || got.KV != 20 || got.Backlog != 10 {
		t.Fatalf("the old worker's entry changed the new one's load to %+v", got)
	}
	l.FinishRequest(&fresh, testStart)
}

func TestForeignLoadNeedsTwoScrapes(t *testing.T) {
	l := NewLedger()
	id, _ := l.AddWorker()
	e := l.DispatchRequest(id, 100, 1000, 0, testStart)
	o := ScrapedLoad{Running: 4, Waiting: 2, KVUsed: 5000, MeanPrompt: 300}
	l.ObserveScrape(id, o)
	if got := l.ReadLoad(id, 1, testStart); got.ForeignSeqs != 0 {
		t.Fatalf("%d sequences count as foreign after one scrape", got.ForeignSeqs)
	}
	l.ObserveScrape(id, o)
	got := l.ReadLoad(id, 1, testStart)
	if got.ForeignSeqs != 5 || got.ForeignBacklog != 600 || got.ForeignKV != 4000 {
		t.Fatalf("foreign load is %+v, want 5 sequences, 600 tokens, 4000 KV", got)
	}
	l.FinishRequest(&e, testStart)
	l.ObserveScrape(id, ScrapedLoad{Running: 1, KVUsed: 900})
	if got = l.ReadLoad(id, 1, testStart); got.ForeignSeqs != 0 || got.ForeignKV != 0 {
		t.Fatalf("our own last sequence counted as foreign: %+v", got)
	}
}

// TestLedgerMatchesReferenceModel compares the ledger with sums over the open entries.
func TestLedgerMatchesReferenceModel(t *testing.T) {
	type open struct {
		e           LedgerEntry
		prefill, kv int64
		began       bool
	}
	rapid.Check(t, func(t *rapid.T) {
		l := NewLedger()
		id, _ := l.AddWorker()
		var all []*open
		now := testStart
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "ms")) * time.Millisecond)
			op := rapid.IntRange(0, 3).Draw(t, "op")
			if op <= 1 || len(all) == 0 {
				o := &open{prefill: rapid.Int64Range(0, 1000).Draw(t, "prefill"), kv: rapid.Int64Range(0, 1000).Draw(t, "kv")}
				o.e = l.DispatchRequest(id, o.prefill, o.kv, 4000, now)
				all = append(all, o)
			} else {
				i := rapid.IntRange(0, len(all)-1).Draw(t, "i")
				if op == 2 {
					l.RecordFirstByte(&all[i].e, now)
					all[i].began = true
				} else {
					l.FinishRequest(&all[i].e, now)
					all = append(all[:i], all[i+1:]...)
				}
			}
			var backlog, kv int64
			for _, o := range all {
				kv += o.kv
				if !o.began {
					backlog += o.prefill
				}
			}
			if got := l.ReadLoad(id, 0, now); got.Backlog != backlog || got.KV != kv || got.Running != int64(len(all)) {
				t.Fatalf("the ledger has %+v, the sums are backlog %d, KV %d, running %d", got, backlog, kv, len(all))
			}
			if got := l.ReadLoad(id, 1e9, now).Backlog; got < 0 || got > backlog {
				t.Fatalf("with time a backlog of %d became %d", backlog, got)
			}
		}
	})
}

// TestLedgerSurvivesClockSetBack: the ledger's clock continues from its last value, and nothing turns negative or
// stops.
func TestLedgerSurvivesClockSetBack(t *testing.T) {
	l := NewLedger()
	id, _ := l.AddWorker()
	e := l.DispatchRequest(id, 1000, 1000, 0, testStart.Add(time.Hour))
	back := testStart.Add(-time.Hour)
	if got := l.ReadLoad(id, 1000, back).Backlog; got != 1000 {
		t.Fatalf("the backlog is %d at the moment the clock is set back", got)
	}
	if got := l.ReadLoad(id, 1000, back.Add(500*time.Millisecond)).Backlog; got != 500 {
		t.Fatalf("half a second later the backlog is %d, want 500", got)
	}
	if got := l.ReadLoad(id, 1000, back.Add(499*time.Millisecond)).Backlog; got != 500 {
		t.Fatalf("a late caller made the clock go back: %d", got)
	}
	l.FinishRequest(&e, back)
	var lat perfmodel.FirstTokenLatency
	lat.ObserveFirstToken(1, 0.5, testStart)
	if p := lat.PeakSeconds(0.1, back); p != 0.5 {
		t.Fatalf("the peak is %v before any observation", p)
	}
}
