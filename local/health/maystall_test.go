package health

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestMayStallIsWhatNothingExpectedIs: it is true just where Stalled is of a worker of whom nothing is expected, so that it is
// never false where Stalled would be true.
func TestMayStallIsWhatNothingExpectedIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, now := New(Config{}, rand.New(rand.NewPCG(1, 2))), time.Unix(1000, 0)
		t.Repeat(map[string]func(*rapid.T){
			"began":    func(*rapid.T) { b.Began(now) },
			"ended":    func(*rapid.T) { b.Ended() },
			"progress": func(*rapid.T) { b.Progress(now) },
			"probe":    func(*rapid.T) { b.Fail(Probe, now) },
			"later": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms")) * time.Millisecond)
			},
			"": func(t *rapid.T) {
				if may, does := b.MayStall(now), b.Stalled(0, now); may != does {
					t.Fatalf("may stall %v, stalled %v", may, does)
				}
				if b.Stalled(time.Second, now) && !b.MayStall(now) {
					t.Fatal("stalled, and it may not")
				}
			},
		})
	})
}
