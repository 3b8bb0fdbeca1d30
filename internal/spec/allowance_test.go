package spec_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/spec"
)

// TestStaticSharesAddUp: whatever the regions and gateways, static shares are never more than the whole, and all of it.
func TestStaticSharesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &spec.Spec{}
		for r := range rapid.IntRange(1, 9).Draw(t, "regions") {
			region := spec.Region{Name: fmt.Sprint("r", r)}
			for g := range rapid.IntRange(1, 5).Draw(t, "gateways") {
				region.Gateways = append(region.Gateways, spec.Gateway{Name: fmt.Sprint("g", g)})
			}
			s.Regions = append(s.Regions, region)
		}
		who := spec.Tenant{Limits: spec.Limits{Scope: rapid.SampledFrom([]string{spec.ScopeGlobal, spec.ScopeRegion}).Draw(t, "scope")}}
		var whole spec.Allowance
		for i := range whole {
			whole[i] = rapid.Int64Range(0, 1<<50).Draw(t, "amount")
		}
		for _, c := range s.Circles(&who) {
			var sum spec.Allowance
			n := 0
			c.Each(whole, func(h spec.Holder, static spec.Allowance) {
				n++
				if c.Static(whole, h) != static || s.CircleOf(&who, h.Region).Static(whole, h) != static {
					t.Fatalf("%v has two shares", h)
				}
				for i := range sum {
					sum[i] += static[i]
				}
			})
			if sum != whole || n != c.Size() {
				t.Fatalf("the shares of %d holders make %v of %v", n, sum, whole)
			}
		}
	})
}

// TestTimedKeysOverlap: while a key is replaced both are taken, and each only in its time, give or take a minute.
func TestTimedKeysOverlap(t *testing.T) {
	s := valid(t)
	s.Tenants[0].Keys = nil
	s.Tenants[0].TimedKeys = []spec.TimedKey{
		{Hash: spec.HashKey("old"), NotAfter: "2026-02-01T00:00:00Z"},
		{Hash: spec.HashKey("new"), NotBefore: "2026-01-01T00:00:00Z"},
	}
	s, err := spec.Decode("keys", spec.Encode(s))
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string][2]bool{
		"2025-12-31T23:58:59Z": {true, false}, "2025-12-31T23:59:01Z": {true, true}, "2026-01-15T00:00:00Z": {true, true},
		"2026-02-01T00:00:59Z": {true, true}, "2026-02-01T00:01:01Z": {false, true},
	} {
		now, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		for i, key := range []string{"old", "new"} {
			if _, ok := s.Authenticate(key, now); ok != want[i] {
				t.Errorf("at %s the %s key is taken: %v", at, key, ok)
			}
		}
	}
}

func TestDays(t *testing.T) {
	b := spec.Budget{DayOffset: spec.Duration(5 * time.Hour)}
	before, after := time.Date(2026, 3, 1, 4, 59, 59, 0, time.UTC), time.Date(2026, 3, 1, 5, 0, 0, 0, time.UTC)
	if b.Day(before)+1 != b.Day(after) || b.DayEnds(before) != time.Second || b.DayEnds(after) != 24*time.Hour {
		t.Errorf("days %d and %d, which last %v and %v", b.Day(before), b.Day(after), b.DayEnds(before), b.DayEnds(after))
	}
	if (&spec.Budget{}).Day(time.Unix(-1, 0)) != -1 {
		t.Error("the second before 1970 is in 1970")
	}
}

func TestPrices(t *testing.T) {
	p := spec.Price{Prompt: 2, Completion: 6}
	if got := p.Micros(100, 40, 10); got != 260 {
		t.Errorf("without a price of its own what a cache saved costs the same: %d", got)
	}
	p.Cached = 0.5
	if got := p.Micros(100, 40, 10); got != 200 {
		t.Errorf("%d, want 120+20+60", got)
	}
}
