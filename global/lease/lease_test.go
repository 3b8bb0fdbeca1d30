package lease

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// TestSplitsAddUp: whatever is asked for, targets never exceed the amount where the floors do not, and leave nothing over.
func TestSplitsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := spec.Resource(rapid.IntRange(0, int(spec.NumResources)-1).Draw(t, "resource"))
		n := rapid.IntRange(1, 9).Draw(t, "gateways")
		c := &circle{}
		c.whole[r] = rapid.Int64Range(1, 1<<45).Draw(t, "whole")
		var spent, floors int64
		for range n {
			s := &stake{holder: &holder{ruled: true}}
			s.static[r] = c.whole[r] / int64(n)
			if r >= spec.DayTokens {
				s.use.DayTokens = rapid.Int64Range(0, c.whole[r]/int64(n)).Draw(t, "spent")
				s.use.DayMicros = s.use.DayTokens
			}
			s.use.RequestsMilli, s.use.TokensMilli = rapid.Int64Range(0, 1<<46).Draw(t, "requests"), rapid.Int64Range(0, 1<<46).Draw(t, "tokens")
			s.use.Wanted = rapid.Int64Range(0, 1<<46).Draw(t, "wanted")
			spent, floors = spent+s.spent(r), floors+s.floor(r)
			c.stakes = append(c.stakes, s)
		}
		amount := rapid.Int64Range(floors, c.whole[r]).Draw(t, "amount")
		if r >= spec.DayTokens {
			amount = max(amount, spent)
		}
		var sum int64
		for i, x := range c.split(r, amount, c.stakes) {
			sum += x
			if x < c.stakes[i].floor(r) || r >= spec.DayTokens && x < c.stakes[i].spent(r)-1 {
				t.Fatalf("gateway %d gets %d, less than its floor %d or than it has used", i, x, c.stakes[i].floor(r))
			}
		}
		if sum > amount || float64(amount-sum) > 1e-9*float64(amount)+float64(n) {
			t.Fatalf("%d of %d is given out", sum, amount)
		}
	})
}

// TestListsAreBounded: of more tenants than a list takes, those beyond keep their static shares, and are counted.
func TestListsAreBounded(t *testing.T) {
	s := &spec.Spec{Regions: []spec.Region{
		{Name: "a", Gateways: []spec.Gateway{{Name: "g"}}}, {Name: "b", Gateways: []spec.Gateway{{Name: "g"}}},
	}}
	var reports []Report
	for _, r := range []string{"a", "b"} {
		reports = append(reports, Report{Holder: spec.Holder{Region: r, Gateway: "g"}})
	}
	for n := range maxListed + 5 {
		name := fmt.Sprintf("t%05d", n)
		s.Tenants = append(s.Tenants, spec.Tenant{Name: name, Limits: spec.Limits{Scope: spec.ScopeGlobal, RequestsPerMinute: 60}})
		reports[0].Uses = append(reports[0].Uses, capacity.Use{Tenant: name, RequestsMilli: 60_000})
	}
	now := time.Unix(1000, 0)
	l := New(1, now)
	for n := range uint64(4) {
		now = now.Add(3 * time.Second)
		for i := range reports {
			reports[i].Holding = capacity.Holding{Term: 1, Number: n}
		}
		for _, g := range l.Step(now, s, reports) {
			if len(g.Leases) > maxListed {
				t.Fatalf("%d leases in a list", len(g.Leases))
			}
		}
	}
	if l.Listed() != maxListed || l.LeftOut != 5 {
		t.Errorf("%d listed, %d left out", l.Listed(), l.LeftOut)
	}
}

// TestNobodyIsToldBeforeTheOldLeaderKnows: a new leader is silent first, then says hold, and only then leases.
func TestNobodyIsToldBeforeTheOldLeaderKnows(t *testing.T) {
	s := &spec.Spec{
		Regions: []spec.Region{{Name: "a", Gateways: []spec.Gateway{{Name: "g"}}}, {Name: "b", Gateways: []spec.Gateway{{Name: "g"}}}},
		Tenants: []spec.Tenant{{Name: "acme", Limits: spec.Limits{Scope: spec.ScopeGlobal, RequestsPerMinute: 60}}},
	}
	a, b := spec.Holder{Region: "a", Gateway: "g"}, spec.Holder{Region: "b", Gateway: "g"}
	now := time.Unix(1000, 0)
	l := New(4, now)
	said := func(term, number uint64) []Report {
		h := capacity.Holding{Term: term, Number: number}
		return []Report{{Holder: a, Holding: h, Uses: []capacity.Use{{Tenant: "acme", RequestsMilli: 100_000}}}, {Holder: b, Holding: h}}
	}
	if got := l.Step(now.Add(time.Second), s, said(3, 9)); got != nil {
		t.Fatalf("within a second the new leader says %+v", got[a])
	}
	now = now.Add(3 * time.Second)
	if got := l.Step(now, s, said(3, 9)); len(got) != 2 || !got[a].Hold || got[a].Term != 4 || len(got[a].Leases) != 0 {
		t.Fatalf("first it says %+v", got[a])
	}
	got := l.Step(now.Add(time.Second), s, said(4, 1))
	if got[a] == nil || got[a].Hold || got[a].Number != 2 {
		t.Fatalf("after all hold it says %+v", got[a])
	}
	for n := uint64(2); n < 6; n++ {
		now = now.Add(time.Second)
		got = l.Step(now, s, said(4, n))
	}
	if x := got[a].Leases[0].Part[spec.Requests] + got[b].Leases[0].Part[spec.Requests]; x > 60_000 || got[a].Leases[0].Part[spec.Requests] < 50_000 {
		t.Fatalf("then it leases %+v and %+v", got[a].Leases, got[b].Leases)
	}
}

// TestAHeldCapIsWhatTheGatewayTells: a gateway that holds less of a budget than its static share is not taken for one that
// has all of it: what looked like taking away would give it what others have used.
func TestAHeldCapIsWhatTheGatewayTells(t *testing.T) {
	for _, c := range []struct{ used, told, held int64 }{
		{0, 0, 500},     // nothing is leased: the static share
		{600, 0, 600},   // of the day before a restart without a record
		{100, 300, 300}, // less than the static share
		{0, 1, 1},
		{100, 700, 500}, // the hold has taken what is beyond it
		{600, 700, 600}, // and leaves what is used
		{310, 300, 300}, // a stream ran on
	} {
		s := stake{holder: &holder{ruled: true}, static: spec.Allowance{spec.DayTokens: 500, spec.DayMicros: 500}}
		s.use.DayTokens, s.use.CapTokens, s.use.DayMicros, s.use.CapMicros = c.used, c.told, c.used, c.told
		s.fall()
		for _, r := range []spec.Resource{spec.DayTokens, spec.DayMicros} {
			if s.held[r] != c.held || s.offered[r] != c.held || s.most(time.Time{})[r] != max(c.held, c.used) {
				t.Errorf("%+v: held %d, offered %d, at most %d", c, s.held[r], s.offered[r], s.most(time.Time{})[r])
			}
		}
	}
}
