package pick

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/explain"
)

// TestTokensComeAsCloseTogetherAsWasAskedFor: every policy leaves a worker whose batch is too large for that, while there is
// another, and the record says why. Where nobody can do it somebody does it all the same.
func TestTokensComeAsCloseTogetherAsWasAskedFor(t *testing.T) {
	for _, p := range Policies() {
		v, l := fleet(3, "H100")
		policy, err := ParsePolicy(p)
		if err != nil {
			t.Fatal(err)
		}
		v = NewView(v.Workers, l, v.Index, policy)
		for _, busy := range []int32{0, 1} {
			for range 80 {
				l.Dispatch(busy, 500, 2000, v.Workers[busy].KVTotal, t0)
			}
		}
		crowded := v.Workers[0].Rates.Step(81, float64(l.accounts[0].heldKV()))
		alone := v.Workers[2].Rates.Step(1, 600)
		if crowded < 2*alone {
			t.Fatalf("a step of 81 takes %v s, of one %v", crowded, alone)
		}
		between := time.Duration((crowded + alone) / 2 * float64(time.Second))
		for range 20 {
			var rec explain.Record
			q := &Query{PromptTokens: 500, OutputTokens: 200, Key: 7, Step: between}
			d, ok := Choose(q, v, t0, testRNG(), nil)
			if !ok || d.Index != 2 {
				t.Fatalf("%s: asked for a token every %v it chose %+v, %v", p, between, d, ok)
			}
			if d, ok := Look(q, v, t0, testRNG(), &rec); !ok || d.Index != 2 {
				t.Fatalf("%s: with a record it is %+v", p, d)
			}
			q.Step = time.Nanosecond
			if d, ok := Choose(q, v, t0, testRNG(), nil); !ok {
				t.Fatalf("%s: what nobody can do is refused: %+v", p, d)
			}
		}
	}
}

// TestAStepIsKeptWhereItCanBe: in any fleet, whoever is chosen keeps to it if any that has room does; and nothing is
// allocated for it.
func TestAStepIsKeptWhereItCanBe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, l := fleet(rapid.IntRange(1, 6).Draw(t, "workers"), "L4", "H100")
		for i := range v.Workers {
			for range rapid.IntRange(0, 30).Draw(t, "busy") {
				l.Dispatch(int32(i), 300, 900, v.Workers[i].KVTotal, t0)
			}
		}
		q := &Query{PromptTokens: 400, OutputTokens: 100, Step: time.Duration(rapid.IntRange(1, 100).Draw(t, "ms")) * time.Millisecond}
		d, ok := Choose(q, v, t0, testRNG(), nil)
		if !ok {
			return
		}
		took := v.step(int32(d.Index))
		for i := range v.Workers {
			if s := v.step(int32(i)); s <= q.Step.Seconds() && took > q.Step.Seconds() && v.room(i) == dropNot {
				t.Fatalf("worker %d was chosen with a step of %v s, worker %d has room and one of %v", d.Index, took, i, s)
			}
		}
	})
	v, _ := fleet(50, "L4", "H100")
	q := &Query{PromptTokens: 400, OutputTokens: 100, Step: 30 * time.Millisecond}
	rng := testRNG()
	if n := testing.AllocsPerRun(100, func() { Choose(q, v, t0, rng, nil) }); n != 0 {
		t.Errorf("%v allocations for a choice", n)
	}
}

// TestWhoMayWaitJoinsNoBatchThatIsTooLarge: it waits where a smaller one would do, and not where none would.
func TestWhoMayWaitJoinsNoBatchThatIsTooLarge(t *testing.T) {
	v, l := fleet(1, "H100")
	for range 120 {
		e := l.Dispatch(0, 500, 2000, v.Workers[0].KVTotal, t0)
		l.FirstByte(&e, t0.Add(-time.Hour)) // long ago: no prompt counts
	}
	alone, crowded := v.Workers[0].Rates.Step(1, 600), v.step(0)
	if crowded < 2*alone {
		t.Fatalf("a step of 121 takes %v s, of one %v", crowded, alone)
	}
	for _, c := range []struct {
		what          string
		step          float64
		steady, spare bool
		want          bool
	}{
		{"in a hurry", crowded / 2, false, false, true},
		{"may wait", crowded / 2, true, false, false},
		{"may wait for what nobody can do", alone / 2, true, false, true},
		{"may wait, and the batch is small enough", crowded * 1.2, true, false, true},
		{"leaves a part to others", crowded * 1.2, true, true, false},
		{"leaves a part to others, and may not wait", crowded * 1.2, false, true, true},
	} {
		q := &Query{PromptTokens: 500, OutputTokens: 200, Step: time.Duration(c.step * float64(time.Second)), Steady: c.steady, Spare: c.spare}
		if d, ok := Choose(q, v, t0, testRNG(), nil); ok != c.want || !ok && d.Reason != ReasonBusy {
			t.Errorf("%s: placed %v, %s", c.what, ok, d.Reason)
		}
	}
}

// TestPromptsMakeStepsLonger by the part of the time that they take, for as long as they come.
func TestPromptsMakeStepsLonger(t *testing.T) {
	v, l := fleet(1, "H100")
	at, before := t0, 0.0
	for range 300 { // half of the time
		e := l.Dispatch(0, int64(0.05*v.Workers[0].Rates.PrefillRate), 10, v.Workers[0].KVTotal, at)
		at = at.Add(100 * time.Millisecond)
		l.FirstByte(&e, at)
		l.Finish(&e, at)
	}
	q := &Query{PromptTokens: 500, OutputTokens: 200}
	v.ask(q, at, testRNG())
	before = v.Workers[0].Rates.Step(1, 600)
	if s := v.step(0); s < 1.5*before || s > 2.2*before {
		t.Errorf("a step takes %v s between prompts that take half of the time, and %v without", s, before)
	}
	v.ask(q, at.Add(time.Minute), testRNG())
	if s := v.step(0); s > 1.01*before {
		t.Errorf("a minute after the last prompt a step takes %v s, and not %v", s, before)
	}
}
