package perfmodel

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestQueueingExternalityMatchesSimulatedQueue simulates a queue with and without one more prompt, and adds up the
// additional waiting time of the others.
func TestQueueingExternalityMatchesSimulatedQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		own := rapid.Float64Range(0.1, 5).Draw(t, "own")
		wait := rapid.Float64Range(0, 5).Draw(t, "wait")
		rate := rapid.Float64Range(0.5, 5).Draw(t, "rate") // prompts per second
		busy := rapid.Float64Range(0, 0.7).Draw(t, "busy")
		each := busy / rate
		// A fluid model: in each time step some prompts arrive, wait for the backlog and add their work.
		const dt = 1e-4
		var extra float64
		with, without := wait+own, wait
		for with > 0 {
			extra += rate * dt * (with - without)
			with += dt * (rate*each - 1)
			without = max(without+dt*(rate*each-1), 0)
		}
		if got := QueueingExternality(own, wait, rate/(1-busy)); math.Abs(got-extra) > 0.01*extra+0.01 {
			t.Fatalf("others wait %v s longer, predicted %v", extra, got)
		}
	})
}

func TestArrivalStatsMatchDispatchedPrompts(t *testing.T) {
	var f ArrivalStats
	if f.QueueingFactor() != 0 {
		t.Fatal("the queueing factor is above 0 without observations")
	}
	now, sent := testStart, PrefillCounts{}
	run := func(seconds int, prompts, tokens int64) {
		for range seconds {
			now = now.Add(time.Second)
			sent.Prompts += prompts
			sent.Tokens += tokens
			f.ObserveSent(sent, 10_000, now)
		}
	}
	f.ObserveSent(sent, 10_000, now)
	run(600, 2, 5000)
	if got := f.QueueingFactor(); math.Abs(got-4) > 0.05 { // 2 per second, which leave half of the time
		t.Errorf("two prompts per second that take half of the time: factor %v", got)
	}
	run(600, 2, 500_000)
	if got := f.QueueingFactor(); math.Abs(got-2/(1-maxUtilization)) > 0.05 {
		t.Errorf("overloaded worker: factor %v", got)
	}
	run(60, 0, 0)
	if got := f.QueueingFactor(); !(got > 1) || !(got < 5.5) {
		t.Errorf("after a minute without arrivals the factor is %v, want half", got)
	}
	run(1200, 0, 0)
	if got := f.QueueingFactor(); got > 0.01 {
		t.Errorf("after a long time without arrivals the factor is %v", got)
	}
}

// TestArrivalStatsStayFinite: for any input, the queueing factor is finite and not negative.
func TestArrivalStatsStayFinite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f ArrivalStats
		peer := ArrivalStats{cachedArrivals: 1, freeArrivals: 2, observedSeconds: 1, prefillRate: 1e4}
		now := testStart
		for range rapid.IntRange(1, 50).Draw(t, "n") {
			now = now.Add(time.Duration(rapid.Int64Range(-1e9, 1e12).Draw(t, "dt")))
			f.ObserveSent(PrefillCounts{Prompts: rapid.Int64Range(0, 1<<40).Draw(t, "prompts"), CachedPrompts: rapid.Int64Range(0, 1<<40).Draw(t, "homed"), Tokens: rapid.Int64Range(0, 1<<40).Draw(t, "tokens")},
				rapid.SampledFrom([]float64{0, -1, 1e-3, 1, 1e4, 1e300, math.Inf(1), math.NaN()}).Draw(t, "rate"), now)
			if rapid.Bool().Draw(t, "spread") {
				BalanceFreeArrivals([]*ArrivalStats{&f, &peer})
			}
			for _, got := range []float64{f.QueueingFactor(), peer.QueueingFactor()} {
				if !(got >= 0) || math.IsInf(got, 0) {
					t.Fatalf("queueing factor %v", got)
				}
			}
		}
	})
}

// TestFreeArrivalsAreSharedBySpeed: of three workers one was sent long prompts, one many short ones, and one, which is
// half as fast, holds the prefix of a conversation.
func TestFreeArrivalsAreSharedBySpeed(t *testing.T) {
	var long, short, home ArrivalStats
	flows := []*ArrivalStats{&long, &short, &home, {}} // the last was never observed
	var a, b, c PrefillCounts
	now := testStart
	for range 600 {
		now = now.Add(time.Second)
		a = PrefillCounts{Prompts: a.Prompts + 1, Tokens: a.Tokens + 5000}
		b = PrefillCounts{Prompts: b.Prompts + 9, Tokens: b.Tokens + 5000}
		c = PrefillCounts{Prompts: c.Prompts + 3, CachedPrompts: c.CachedPrompts + 3, Tokens: c.Tokens + 2500}
		long.ObserveSent(a, 10_000, now)
		short.ObserveSent(b, 10_000, now)
		home.ObserveSent(c, 5_000, now)
		BalanceFreeArrivals(flows)
	}
	// 10 of 13 prompts per second can go to any worker: 4, 4 and 2 by speed. All workers are half busy.
	for f, want := range map[*ArrivalStats]float64{&long: 2 * (3.0/13*1 + 10.0/13*4), &short: 2 * (3.0/13*9 + 10.0/13*4), &home: 2 * (3 + 10.0/13*2), flows[3]: 0} {
		if got := f.QueueingFactor(); math.Abs(got-want) > 0.1 {
			t.Errorf("factors %v, want %v", got, want)
		}
	}
}
