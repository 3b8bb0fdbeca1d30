package pick

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestAfterIsWhatAQueueSays works a queue off with and without one prompt more, and adds up how much longer the others wait.
func TestAfterIsWhatAQueueSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		own := rapid.Float64Range(0.1, 5).Draw(t, "own")
		wait := rapid.Float64Range(0, 5).Draw(t, "wait")
		rate := rapid.Float64Range(0.5, 5).Draw(t, "rate") // prompts a second
		busy := rapid.Float64Range(0, 0.7).Draw(t, "busy")
		each := busy / rate
		// A fluid of prompts: in each moment some come, wait for what is there, and bring their work.
		const dt = 1e-4
		var extra float64
		with, without := wait+own, wait
		for with > 0 {
			extra += rate * dt * (with - without)
			with += dt * (rate*each - 1)
			without = max(without+dt*(rate*each-1), 0)
		}
		if got := after(own, wait, rate/(1-busy)); math.Abs(got-extra) > 0.01*extra+0.01 {
			t.Fatalf("others wait %v s longer, and %v is reckoned with", extra, got)
		}
	})
}

func TestFlowTellsWhatAWorkerIsSent(t *testing.T) {
	var f Flow
	if f.Later() != 0 {
		t.Fatal("nothing was seen and somebody is believed to wait")
	}
	now, sent := t0, Prefilled{}
	run := func(seconds int, prompts, tokens int64) {
		for range seconds {
			now = now.Add(time.Second)
			sent.Prompts += prompts
			sent.Tokens += tokens
			f.Observe(sent, 10_000, now)
		}
	}
	f.Observe(sent, 10_000, now)
	run(600, 2, 5000)
	if got := f.Later(); math.Abs(got-4) > 0.05 { // 2 a second, which leave half of the time
		t.Errorf("two prompts a second that take half of the time make %v", got)
	}
	run(600, 2, 500_000)
	if got := f.Later(); math.Abs(got-2/(1-busiest)) > 0.05 {
		t.Errorf("a worker with more than it can do makes %v", got)
	}
	run(60, 0, 0)
	if got := f.Later(); !(got > 1) || !(got < 5.5) {
		t.Errorf("after a minute's silence half should be left, and %v is", got)
	}
	run(1200, 0, 0)
	if got := f.Later(); got > 0.01 {
		t.Errorf("after a long silence %v is left", got)
	}
}

// TestFlowIsSane: whatever it is told, a flow is a number, and none below zero.
func TestFlowIsSane(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f Flow
		peer := Flow{homed: 1, free: 2, seen: 1, rate: 1e4}
		now := t0
		for range rapid.IntRange(1, 50).Draw(t, "n") {
			now = now.Add(time.Duration(rapid.Int64Range(-1e9, 1e12).Draw(t, "dt")))
			f.Observe(Prefilled{Prompts: rapid.Int64Range(0, 1<<40).Draw(t, "prompts"), Homed: rapid.Int64Range(0, 1<<40).Draw(t, "homed"), Tokens: rapid.Int64Range(0, 1<<40).Draw(t, "tokens")},
				rapid.SampledFrom([]float64{0, -1, 1e-3, 1, 1e4, 1e300, math.Inf(1), math.NaN()}).Draw(t, "rate"), now)
			if rapid.Bool().Draw(t, "spread") {
				Spread([]*Flow{&f, &peer})
			}
			for _, got := range []float64{f.Later(), peer.Later()} {
				if !(got >= 0) || math.IsInf(got, 0) {
					t.Fatalf("%v prompts will wait", got)
				}
			}
		}
	})
}

// TestWhatGoesAnywhereCountsByNobodysPrompts: of three workers one was sent long prompts, one many short ones, and one, which is
// half as fast, is home to a conversation.
func TestWhatGoesAnywhereCountsByNobodysPrompts(t *testing.T) {
	var long, short, home Flow
	flows := []*Flow{&long, &short, &home, {}} // the last was never observed
	var a, b, c Prefilled
	now := t0
	for range 600 {
		now = now.Add(time.Second)
		a = Prefilled{Prompts: a.Prompts + 1, Tokens: a.Tokens + 5000}
		b = Prefilled{Prompts: b.Prompts + 9, Tokens: b.Tokens + 5000}
		c = Prefilled{Prompts: c.Prompts + 3, Homed: c.Homed + 3, Tokens: c.Tokens + 2500}
		long.Observe(a, 10_000, now)
		short.Observe(b, 10_000, now)
		home.Observe(c, 5_000, now)
		Spread(flows)
	}
	// 10 of 13 a second go anywhere: by speed 4, 4 and 2; all are half busy.
	for f, want := range map[*Flow]float64{&long: 2 * (3.0/13*1 + 10.0/13*4), &short: 2 * (3.0/13*9 + 10.0/13*4), &home: 2 * (3 + 10.0/13*2), flows[3]: 0} {
		if got := f.Later(); math.Abs(got-want) > 0.1 {
			t.Errorf("%v will wait, and not %v", got, want)
		}
	}
}

// TestALongColdPromptGoesWhereFewComeBack: two workers have nothing to do; one of them is home to many conversations.
func TestALongColdPromptGoesWhereFewComeBack(t *testing.T) {
	v, _ := fleet(2, "A100")
	change(v, 0, func(w *Worker) { w.Later = 0.5 })
	change(v, 1, func(w *Worker) { w.Later = 0.1 })
	for range 50 {
		got, ok := Choose(&Query{PromptTokens: 100_000, OutputTokens: 300}, v, t0, testRNG(), nil)
		if !ok || got.Index != 1 {
			t.Fatalf("a prompt of 100,000 tokens went to worker %d, where most will wait for it", got.Index)
		}
	}
}
