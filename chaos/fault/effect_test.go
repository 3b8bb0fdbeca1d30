package fault

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestShaperKeepsOrderAndDelay: without reordering nothing overtakes, nothing arrives before the delay, and without loss
// everything arrives.
func TestShaperKeepsOrderAndDelay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := effect{
			delay:     time.Duration(rapid.IntRange(0, 100).Draw(t, "delay")) * time.Millisecond,
			jitter:    time.Duration(rapid.IntRange(0, 50).Draw(t, "jitter")) * time.Millisecond,
			duplicate: rapid.Float64Range(0, 1).Draw(t, "duplicate"),
			loss:      rapid.SampledFrom([]float64{0, 0.3}).Draw(t, "loss"),
			stall:     200 * time.Millisecond,
		}
		s, tcp := shaper{base: time.Millisecond, effect: e}, shaper{base: time.Millisecond, effect: e}
		rng := rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "seed")))
		now := time.Unix(1e9, 0)
		var last, lastByte time.Time
		for range 100 {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "gap")) * time.Microsecond)
			at, copies := s.sendDatagram(now, 100, rng)
			if e.loss == 0 && copies == 0 {
				t.Fatal("a datagram is lost without loss")
			}
			if copies > 0 {
				if at[0].Before(last) || at[0].Sub(now) < time.Millisecond+e.delay {
					t.Fatalf("arrives at %s after %s, sent at %s with %s", at[0], last, now, e.delay)
				}
				last = at[0]
			}
			byteAt, _ := tcp.sendSegments(now, 5000, lastByte, rng)
			if byteAt.Before(lastByte) || byteAt.Sub(now) < time.Millisecond+e.delay {
				t.Fatalf("bytes arrive at %s after %s, sent at %s", byteAt, lastByte, now)
			}
			lastByte = byteAt
		}
	})
}

func TestShaperLosesAndReordersItsShare(t *testing.T) {
	s := shaper{effect: effect{loss: 0.1, duplicate: 0.2, reorder: 0.05, reorderDelay: 10 * time.Millisecond}}
	rng := rand.New(rand.NewPCG(1, 2))
	now := time.Unix(1e9, 0)
	const n = 20_000
	lost, twice, late := 0, 0, 0
	for range n {
		now = now.Add(time.Millisecond)
		at, copies := s.sendDatagram(now, 100, rng)
		switch {
		case copies == 0:
			lost++
		case copies == 2:
			twice++
		}
		if copies > 0 && at[0].Sub(now) > 5*time.Millisecond {
			late++
		}
	}
	for name, c := range map[string]struct {
		got  int
		want float64
	}{"lost": {lost, 0.1}, "twice": {twice, 0.9 * 0.2}, "late": {late, 0.9 * 0.05}} {
		if got := float64(c.got) / n; got < 0.9*c.want || got > 1.1*c.want {
			t.Errorf("%s: %.4f, want %.4f", name, got, c.want)
		}
	}
}

func TestRateLimitsDatagramsAndStreams(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	start := time.Unix(1e9, 0)
	udp, passed := shaper{effect: effect{rate: 1e6}}, 0
	for i := range 10_000 { // 12 Mbit/s offered for a second
		if _, copies := udp.sendDatagram(start.Add(time.Duration(i)*100*time.Microsecond), 150, rng); copies > 0 {
			passed += 150 * 8
		}
	}
	if passed < 1e6 || passed > 1.3e6 { // a second of rate and the queue
		t.Errorf("%d bits passed in a second, want 1,000,000 and a queue of 200 ms", passed)
	}
	tcp := shaper{effect: effect{rate: 1e6}}
	now, sent := start, 0
	for now.Sub(start) < 10*time.Second {
		_, wait := tcp.sendSegments(now, 5000, time.Time{}, rng)
		sent += 5000 * 8
		now = now.Add(wait)
	}
	if sent < 10e6 || sent > 10.5e6 {
		t.Errorf("%d bits of a stream passed in ten seconds, want 10,000,000 and a queue of 200 ms", sent)
	}
}

// TestEffectsOfTwoFaultsAddUp: the order does not matter, and a fault without effect changes nothing.
func TestEffectsOfTwoFaultsAddUp(t *testing.T) {
	draw := rapid.Custom(func(t *rapid.T) effect {
		return effect{
			delay: time.Duration(rapid.IntRange(0, 9).Draw(t, "delay")), loss: rapid.SampledFrom([]float64{0, 0.25, 0.5, 1}).Draw(t, "loss"),
			rate: rapid.SampledFrom([]float64{0, 1, 2}).Draw(t, "rate"), cut: rapid.Bool().Draw(t, "cut"), discard: rapid.Bool().Draw(t, "discard"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw.Draw(t, "a"), draw.Draw(t, "b")
		if addEffect(a, b) != addEffect(b, a) {
			t.Fatalf("%+v and %+v", addEffect(a, b), addEffect(b, a))
		}
		if addEffect(a, effect{}) != a {
			t.Fatalf("%+v", addEffect(a, effect{}))
		}
	})
}
