package routing_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/regional/routing"
)

// The usage in a child's responses changes the expected cache retention of that child only.
func TestCacheRetentionIsLearnedPerInstance(t *testing.T) {
	full, roomy, silent := capacity.Path{Zone: "full"}, capacity.Path{Zone: "roomy"}, capacity.Path{Zone: "silent"}
	retention := routing.NewCacheRetention()
	for range 100 {
		retention.RecordAnswer(full, 1000, 100) // a prefix that all prompts share
		retention.RecordAnswer(roomy, 1000, 1200)
		retention.RecordAnswer(silent, 1000, 0) // an engine that does not report cached tokens
	}
	if got := retention.FractionFor(full); got < 0.1 || got > 0.12 {
		t.Errorf("a child that had a tenth of the prompt cached has retention %.2f", got)
	}
	if r, s := retention.FractionFor(roomy), retention.FractionFor(silent); r != 1 || s != 1 {
		t.Errorf("retention %.2f of a child that had all cached, %.2f of one that reports nothing, want 1 of both", r, s)
	}
	for range 100 {
		retention.RecordAnswer(full, 1000, 1000)
	}
	if got := retention.FractionFor(full); got < 0.98 {
		t.Errorf("a child that has all cached again has retention %.2f", got)
	}
}

func TestCacheRetentionStaysBetweenZeroAndOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		retention := routing.NewCacheRetention()
		for range rapid.IntRange(1, 200).Draw(t, "answers") {
			at := capacity.Path{Zone: fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "zone"))}
			retention.RecordAnswer(at, rapid.Int().Draw(t, "expected"), rapid.Int().Draw(t, "cached"))
			if got := retention.FractionFor(at); !(got >= 0 && got <= 1) {
				t.Fatalf("retention %v", got)
			}
		}
	})
}

// The number of children with a learned retention is bounded, however many names occur. The newest is always among them.
func TestCacheRetentionIsBounded(t *testing.T) {
	const most = 4096
	retention := routing.NewCacheRetention()
	child := func(i int) capacity.Path { return capacity.Path{Zone: "z", Instance: fmt.Sprint(i)} }
	for i := range 2*most + 10 {
		retention.RecordAnswer(child(i), 1000, 1)
		if !(retention.FractionFor(child(i)) < 1) {
			t.Fatalf("child %d had nothing cached and has retention 1", i)
		}
		if i == most-1 && !(retention.FractionFor(child(0)) < 1) {
			t.Fatalf("the first of %d is forgotten", most)
		}
	}
	known := 0
	for i := range 2*most + 10 {
		if retention.FractionFor(child(i)) < 1 {
			known++
		}
	}
	if known > most {
		t.Errorf("%d are remembered, want %d at the most", known, most)
	}
}
