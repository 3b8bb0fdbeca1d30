package pick

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestOldestPrefillDecaysByTheClockButNeverToNothing(t *testing.T) {
	l := NewLedger()
	id, _ := l.Add()
	a := l.Dispatch(id, 1000, 0, 0, t0)
	b := l.Dispatch(id, 500, 0, 0, t0)
	for _, c := range []struct {
		after time.Duration
		want  int64
	}{{0, 1500}, {100 * time.Millisecond, 1400}, {time.Hour, 550}} {
		if got := l.Load(id, 1000, t0.Add(c.after)).Backlog; got != c.want {
			t.Errorf("after %v the backlog is %d, want %d", c.after, got, c.want)
		}
	}
	now := t0.Add(time.Second)
	l.FirstByte(&b, now) // out of order: the engine took both in one step
	if got := l.Load(id, 1000, now).Backlog; got != 50 {
		t.Errorf("backlog is %d after the second's first byte, want the 50 the clock cannot prove", got)
	}
	l.FirstByte(&a, now)
	l.FirstByte(&a, now)
	if got := l.Load(id, 1000, now); got.Backlog != 0 || got.Running != 2 {
		t.Errorf("load is %+v, want no backlog and 2 running", got)
	}
}

func TestEntryOfADroppedWorkerTouchesNobody(t *testing.T) {
	l := NewLedger()
	id, _ := l.Add()
	old := l.Dispatch(id, 100, 200, 0, t0)
	l.Drop(id)
	again, _ := l.Add()
	if again != id {
		t.Fatalf("slot %d was not used again: got %d", id, again)
	}
	fresh := l.Dispatch(again, 10, 20, 0, t0)
	l.FirstByte(&old, t0)
	l.Finish(&old, t0)
	if got := l.Load(again, 1, t0); got.Running != 1 || got.KV != 20 || got.Backlog != 10 {
		t.Fatalf("the old worker's entry changed the new one's account to %+v", got)
	}
	l.Finish(&fresh, t0)
}

func TestForeignNeedsTwoScrapes(t *testing.T) {
	l := NewLedger()
	id, _ := l.Add()
	e := l.Dispatch(id, 100, 1000, 0, t0)
	o := Observation{Running: 4, Waiting: 2, KVUsed: 5000, MeanPrompt: 300}
	l.Observe(id, o)
	if got := l.Load(id, 1, t0); got.ForeignSeqs != 0 {
		t.Fatalf("one scrape made %d sequences foreign", got.ForeignSeqs)
	}
	l.Observe(id, o)
	got := l.Load(id, 1, t0)
	if got.ForeignSeqs != 5 || got.ForeignBacklog != 600 || got.ForeignKV != 4000 {
		t.Fatalf("foreign load is %+v, want 5 sequences, 600 tokens, 4000 KV", got)
	}
	l.Finish(&e, t0)
	l.Observe(id, Observation{Running: 1, KVUsed: 900})
	if got = l.Load(id, 1, t0); got.ForeignSeqs != 0 || got.ForeignKV != 0 {
		t.Fatalf("our own last sequence was taken for a foreign one: %+v", got)
	}
}

// TestLedgerAgainstAModel compares the ledger with plain sums over the open entries.
func TestLedgerAgainstAModel(t *testing.T) {
	type open struct {
		e           Entry
		prefill, kv int64
		began       bool
	}
	rapid.Check(t, func(t *rapid.T) {
		l := NewLedger()
		id, _ := l.Add()
		var all []*open
		now := t0
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "ms")) * time.Millisecond)
			op := rapid.IntRange(0, 3).Draw(t, "op")
			if op <= 1 || len(all) == 0 {
				o := &open{prefill: rapid.Int64Range(0, 1000).Draw(t, "prefill"), kv: rapid.Int64Range(0, 1000).Draw(t, "kv")}
				o.e = l.Dispatch(id, o.prefill, o.kv, 4000, now)
				all = append(all, o)
			} else {
				i := rapid.IntRange(0, len(all)-1).Draw(t, "i")
				if op == 2 {
					l.FirstByte(&all[i].e, now)
					all[i].began = true
				} else {
					l.Finish(&all[i].e, now)
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
			if got := l.Load(id, 0, now); got.Backlog != backlog || got.KV != kv || got.Running != int64(len(all)) {
				t.Fatalf("ledger says %+v, the sums are backlog %d, KV %d, running %d", got, backlog, kv, len(all))
			}
			if got := l.Load(id, 1e9, now).Backlog; got < 0 || got > backlog {
				t.Fatalf("the clock turned a backlog of %d into %d", backlog, got)
			}
		}
	})
}

func TestLearnerFindsRatesThroughNoise(t *testing.T) {
	l := NewLearner(PriorFor("A100", "llama-3.1-8b").Rates)
	rng := testRNG()
	for i := range 600 {
		work := 100 + 6000*rng.Float64()
		y := 0.030 + work/6000
		if i%25 == 0 {
			y += 20 // a stalled answer
		}
		l.FirstToken(work, y*math.Exp(0.1*rng.NormFloat64()))
		seqs := 1 + 40*rng.Float64()
		ctx := seqs * (500 + 4000*rng.Float64())
		l.Step(seqs, ctx, (0.02+0.0003*seqs+0.0001*ctx/1000)*math.Exp(0.05*rng.NormFloat64()))
	}
	r := l.Rates()
	if r.PrefillRate < 4800 || r.PrefillRate > 7200 {
		t.Errorf("learned %.0f tokens/s, the truth is 6000", r.PrefillRate)
	}
	if s := r.Step(20, 40e3); s < 0.027 || s > 0.033 {
		t.Errorf("learned a step of %.4f s at 20 sequences of 2k context, the truth is 0.030", s)
	}
}

func TestLearnerStaysSaneOnRubbish(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prior := PriorFor("L4", "llama-3.1-8b").Rates
		l := NewLearner(prior)
		for range rapid.IntRange(1, 200).Draw(t, "n") {
			l.FirstToken(rapid.Float64().Draw(t, "work"), rapid.Float64().Draw(t, "s"))
			l.Step(rapid.Float64().Draw(t, "seqs"), rapid.Float64().Draw(t, "context"), rapid.Float64().Draw(t, "step"))
			l.Hit(rapid.Float64().Draw(t, "believed"), rapid.Float64().Draw(t, "actual"))
		}
		r := l.Rates()
		if !(r.PrefillRate >= prior.PrefillRate/17 && r.PrefillRate <= prior.PrefillRate*17) || !(r.StepSlope > 0) || !(r.StepBase >= 0) || !(r.Trust > 0 && r.Trust <= 1) {
			t.Fatalf("learned %+v from a prior of %+v", r, prior)
		}
	})
}

// TestAWorkerThatIsLateIsAvoidedBeforeItAnswers: a worker that has taken far longer than it should for the oldest prompt
// costs what it is late by, and has no room once that is over the patience; one first token clears it.
func TestAWorkerThatIsLateIsAvoidedBeforeItAnswers(t *testing.T) {
	v, l := fleet(2, "L4")
	q := &Query{PromptTokens: 500, OutputTokens: 50, MaxWait: time.Second}
	silent := l.Dispatch(0, 500, 600, v.Workers[0].KVTotal, t0)
	next := l.Dispatch(0, 500, 600, v.Workers[0].KVTotal, t0)
	for range 12 {
		e := l.Dispatch(1, 0, 600, v.Workers[1].KVTotal, t0)
		l.FirstByte(&e, t0)
	}
	if d, ok := Choose(q, v, t0.Add(300*time.Millisecond), testRNG(), nil); !ok || d.Index != 0 {
		t.Fatalf("a worker that is not late yet is avoided: %+v", d)
	}
	if d, ok := Choose(q, v, t0.Add(1500*time.Millisecond), testRNG(), nil); !ok || d.Index != 1 {
		t.Fatalf("1.5 s of silence, where 0.3 s were due, and it is still chosen: %+v", d)
	}
	at := t0.Add(5 * time.Second)
	Look(q, v, at, testRNG(), nil)
	if r := v.room(0); r != dropBacklog {
		t.Errorf("after 5 s of silence it has room: %q", r)
	}
	l.FirstByte(&silent, at)
	if d, ok := Choose(q, v, at.Add(10*time.Millisecond), testRNG(), nil); !ok || d.Index != 0 {
		t.Errorf("it has spoken and is not believed: %+v", d)
	}
	l.FirstByte(&next, at)
	if a := l.account(0).late(l.clock(at.Add(time.Hour)), 1000, 0.1); a != 0 {
		t.Errorf("nothing is before its first token, and it is %v s late", a)
	}
}

// TestLearnerNoticesAChange: a worker that has become four times as slow is known for it within ten answers, and one
// stalled answer changes nothing.
func TestLearnerNoticesAChange(t *testing.T) {
	prior := PriorFor("", "llama-3.1-8b").Rates
	l := NewLearner(prior)
	rng := testRNG()
	answer := func(slow float64) {
		work := 100 + 2000*rng.Float64()
		l.FirstToken(work, slow*(0.09+work/3600)*math.Exp(0.05*rng.NormFloat64()))
	}
	for range 200 {
		answer(1)
	}
	before := l.Rates().PrefillRate
	l.FirstToken(500, 60)
	if after := l.Rates().PrefillRate; math.Abs(after/before-1) > 0.1 {
		t.Errorf("one stalled answer took the rate from %v to %v", before, after)
	}
	for range 10 {
		answer(4)
	}
	r := l.Rates()
	if got := r.PrefillBase + 1000/r.PrefillRate; got < 0.8 || got > 2 {
		t.Errorf("ten slow answers later 1,000 tokens are believed to take %.2f s, want about 1.5", got)
	}
	for range 10 {
		answer(1)
	}
	r = l.Rates()
	if got := r.PrefillBase + 1000/r.PrefillRate; got > 0.6 {
		t.Errorf("ten quick answers later 1,000 tokens are believed to take %.2f s, want about 0.37", got)
	}
}
