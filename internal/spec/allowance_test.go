package spec_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/spec"
)

// TestStaticSharesAddUp: for any regions and gateways, static shares add up to the whole and never exceed it.
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
		who := spec.Tenant{Limits: spec.TenantLimits{Scope: rapid.SampledFrom([]string{spec.ScopeGlobal, spec.ScopeRegion}).Draw(t, "scope")}}
		var whole spec.Quota
		for i := range whole {
			whole[i] = rapid.Int64Range(0, 1<<50).Draw(t, "amount")
		}
		for _, c := range s.SharedQuotas(&who) {
			var sum spec.Quota
			n := 0
			c.ForEachHolder(whole, func(h spec.LeaseHolder, static spec.Quota) {
				n++
				if c.StaticShare(whole, h) != static || s.SharedQuotaOf(&who, h.Region).StaticShare(whole, h) != static {
					t.Fatalf("%v has two shares", h)
				}
				for i := range sum {
					sum[i] += static[i]
				}
			})
			if sum != whole || n != c.HolderCount() {
				t.Fatalf("the shares of %d holders make %v of %v", n, sum, whole)
			}
		}
	})
}

// TestTimedKeysOverlap: during a key rotation both keys are accepted, each within its time +- 1 minute.
func TestTimedKeysOverlap(t *testing.T) {
	s := validSpec(t)
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
			if _, ok := s.AuthenticateKey(key, now); ok != want[i] {
				t.Errorf("at %s the %s key is taken: %v", at, key, ok)
			}
		}
	}
}

func TestBudgetDayNumber(t *testing.T) {
	b := spec.Budget{DayOffset: spec.Duration(5 * time.Hour)}
	before, after := time.Date(2026, 3, 1, 4, 59, 59, 0, time.UTC), time.Date(2026, 3, 1, 5, 0, 0, 0, time.UTC)
	if b.DayNumber(before)+1 != b.DayNumber(after) || b.TimeToDayEnd(before) != time.Second || b.TimeToDayEnd(after) != 24*time.Hour {
		t.Errorf("days %d and %d, which last %v and %v", b.DayNumber(before), b.DayNumber(after), b.TimeToDayEnd(before), b.TimeToDayEnd(after))
	}
	if (&spec.Budget{}).DayNumber(time.Unix(-1, 0)) != -1 {
		t.Error("the second before 1970 is in 1970")
	}
}

func TestCostMicros(t *testing.T) {
	p := spec.Price{Prompt: 2, Completion: 6}
	if got := p.CostMicros(100, 40, 10); got != 260 {
		t.Errorf("without a price of its own what a cache saved costs the same: %d", got)
	}
	p.Cached = 0.5
	if got := p.CostMicros(100, 40, 10); got != 200 {
		t.Errorf("%d, want 120+20+60", got)
	}
}
