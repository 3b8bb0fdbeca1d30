package health

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestMayBeStalledEqualsStalledWithNothingExpected: it equals IsStalled with an expected time of 0, so it is never
// false where IsStalled is true.
func TestMayBeStalledEqualsStalledWithNothingExpected(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, now := New(Config{}, rand.New(rand.NewPCG(1, 2))), time.Unix(1000, 0)
		t.Repeat(map[string]func(*rapid.T){
			"began":    func(*rapid.T) { b.BeginRequest(now) },
			"ended":    func(*rapid.T) { b.EndRequest() },
			"progress": func(*rapid.T) { b.RecordOutput(now) },
			"probe":    func(*rapid.T) { b.RecordFailure(ProbeFailed, now) },
			"later": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms")) * time.Millisecond)
			},
			"": func(t *rapid.T) {
				if may, does := b.MayBeStalled(now), b.IsStalled(0, now); may != does {
					t.Fatalf("may stall %v, stalled %v", may, does)
				}
				if b.IsStalled(time.Second, now) && !b.MayBeStalled(now) {
					t.Fatal("stalled, and it may not")
				}
			},
		})
	})
}
