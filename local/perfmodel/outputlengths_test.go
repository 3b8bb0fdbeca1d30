package perfmodel

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func TestOutputLengthsAreLearnedByTenantAndPromptLength(t *testing.T) {
	l := NewOutputLengths(100)
	if got := l.PredictOutput("m", "a", 1000, 0.8, 384); got != 384 {
		t.Fatalf("%d is predicted without observations", got)
	}
	for i := range 200 {
		l.ObserveOutput("m", "short", 1000, 20)
		l.ObserveOutput("m", "long", 1000, 2000)
		l.ObserveOutput("m", "mixed", 1000, []int64{10, 10, 10, 10, 500}[i%5])
	}
	near := func(tenant string, share float64, low, high int64) {
		t.Helper()
		if got := l.PredictOutput("m", tenant, 1010, share, 384); got < low || got > high {
			t.Errorf("%s at %v: %d predicted, want %d to %d", tenant, share, got, low, high)
		}
	}
	near("short", 0.8, 20, 180)
	near("long", 0.8, 1900, 2400)
	near("mixed", 0.5, 10, 60)
	near("mixed", 0.9, 450, 900)
	if got := l.PredictOutput("m", "newcomer", 1000, 0.5, 384); got < 10 || got > 500 {
		t.Errorf("for a new tenant %d is predicted, want the length of other tenants", got)
	}
	for range 600 {
		l.ObserveOutput("m", "long", 1000, 30) // its answers change
	}
	near("long", 0.8, 30, 200)
}

func TestOutputLengthsAreBoundedAndFinite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 20).Draw(t, "most")
		l := NewOutputLengths(most)
		for i := range rapid.IntRange(1, 300).Draw(t, "n") {
			l.ObserveOutput(fmt.Sprint(i%3), fmt.Sprint(rapid.IntRange(0, 1000).Draw(t, "tenant")), rapid.Int64().Draw(t, "prompt"), rapid.Int64().Draw(t, "output"))
			if l.Len() > max(most, 4) || len(l.histograms) > max(most, 4) {
				t.Fatalf("%d histograms, the bound is %d", l.Len(), most)
			}
		}
		if got := l.PredictOutput("1", "7", rapid.Int64().Draw(t, "p"), rapid.Float64().Draw(t, "share"), 100); got < 0 || got > 1<<20 {
			t.Fatalf("predicted %d tokens", got)
		}
	})
	for n := int64(1); n < 1<<17; n += 1 + n/50 {
		if b := lengthBinOf(n); float64(n) > lengthBinMax(b) || b > 0 && float64(n) <= lengthBinMax(b-1) && lengthBinMax(b-1) > float64(n) {
			t.Fatalf("a length of %d is in bin %d, which ends at %v", n, b, lengthBinMax(b))
		}
	}
}
