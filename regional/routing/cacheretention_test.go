package routing_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/regional/routing"
)

// What a child's answers say of its cache is believed of it, and of no other.
func TestCacheRetentionIsLearnedPerInstance(t *testing.T) {
	full, roomy, silent := capacity.Path{Zone: "full"}, capacity.Path{Zone: "roomy"}, capacity.Path{Zone: "silent"}
	trusts := routing.NewCacheRetention()
	for range 100 {
		trusts.RecordAnswer(full, 1000, 100) // a beginning that all prompts share
		trusts.RecordAnswer(roomy, 1000, 1200)
		trusts.RecordAnswer(silent, 1000, 0) // an engine that does not say what was cached
	}
	if got := trusts.FractionFor(full); got < 0.1 || got > 0.12 {
		t.Errorf("a home that had kept a tenth is believed by %.2f", got)
	}
	if r, s := trusts.FractionFor(roomy), trusts.FractionFor(silent); r != 1 || s != 1 {
		t.Errorf("a home that keeps all is believed by %.2f, and one that says nothing by %.2f", r, s)
	}
	for range 100 {
		trusts.RecordAnswer(full, 1000, 1000)
	}
	if got := trusts.FractionFor(full); got < 0.98 {
		t.Errorf("a home that keeps all again is believed by %.2f", got)
	}
}

func TestCacheRetentionStaysBetweenZeroAndOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trusts := routing.NewCacheRetention()
		for range rapid.IntRange(1, 200).Draw(t, "answers") {
			at := capacity.Path{Zone: fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "zone"))}
			trusts.RecordAnswer(at, rapid.Int().Draw(t, "believed"), rapid.Int().Draw(t, "cached"))
			if got := trusts.FractionFor(at); !(got >= 0 && got <= 1) {
				t.Fatalf("believed by %v", got)
			}
		}
	})
}

// Children come and go, and names may be anything: however many have answered, no more are remembered than the bound, and the newest
// is.
func TestCacheRetentionIsBounded(t *testing.T) {
	const most = 4096
	trusts := routing.NewCacheRetention()
	child := func(i int) capacity.Path { return capacity.Path{Zone: "z", Instance: fmt.Sprint(i)} }
	for i := range 2*most + 10 {
		trusts.RecordAnswer(child(i), 1000, 1)
		if !(trusts.FractionFor(child(i)) < 1) {
			t.Fatalf("child %d has kept nothing and is believed whole", i)
		}
		if i == most-1 && !(trusts.FractionFor(child(0)) < 1) {
			t.Fatalf("the first of %d is forgotten", most)
		}
	}
	known := 0
	for i := range 2*most + 10 {
		if trusts.FractionFor(child(i)) < 1 {
			known++
		}
	}
	if known > most {
		t.Errorf("%d are remembered, want %d at the most", known, most)
	}
}
