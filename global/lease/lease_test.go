package lease

import (
	"fmt"
	"slices"
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

// leaseBench steps a Leader with gateways that acknowledge what they are told, a second at a time.
type leaseBench struct {
	now    time.Time
	leader *Leader
	told   map[spec.Holder]*Grant // what each goes by
	uses   map[spec.Holder]int64  // requests that each is asked for, in thousandths a minute
}

func twoGateways(extra ...string) *spec.Spec {
	s := &spec.Spec{
		Regions: []spec.Region{{Name: "a", Gateways: []spec.Gateway{{Name: "g"}}}, {Name: "b", Gateways: []spec.Gateway{{Name: "g"}}}},
		Tenants: []spec.Tenant{{Name: "acme", Limits: spec.Limits{Scope: spec.ScopeGlobal, RequestsPerMinute: 1000}}},
	}
	for _, name := range extra {
		s.Regions = append(s.Regions, spec.Region{Name: name, Gateways: []spec.Gateway{{Name: "g"}}})
	}
	return s
}

func newLeaseBench() *leaseBench {
	b := &leaseBench{now: time.Unix(1000, 0), told: map[spec.Holder]*Grant{}, uses: map[spec.Holder]int64{}}
	b.leader = New(4, b.now)
	return b
}

// run steps for some seconds. silent gateways say nothing, and nothing reaches them.
func (b *leaseBench) run(s *spec.Spec, seconds int, silent ...spec.Holder) {
	for range seconds {
		b.now = b.now.Add(time.Second)
		var reports []Report
		for id, n := range b.uses {
			if slices.Contains(silent, id) {
				continue
			}
			r := Report{Holder: id, Uses: []capacity.Use{{Tenant: "acme", RequestsMilli: n}}}
			if g := b.told[id]; g != nil {
				r.Holding = capacity.Holding{Term: g.Term, Number: g.Number}
			}
			reports = append(reports, r)
		}
		for id, g := range b.leader.Step(b.now, s, reports) {
			if was := b.told[id]; was == nil || g.Term > was.Term || g.Term == was.Term && g.Number >= was.Number {
				b.told[id] = g
			}
		}
	}
}

func (b *leaseBench) part(id spec.Holder) int64 {
	if g := b.told[id]; g != nil && len(g.Leases) > 0 {
		return g.Leases[0].Part[spec.Requests]
	}
	return 0
}

// TestReaddedGatewayGetsItsLease: a gateway that leaves the spec and comes back in the same term, soon or after its lease
// has lapsed, gets a list with a greater number than the one that it holds.
func TestReaddedGatewayGetsItsLease(t *testing.T) {
	a, b, c := spec.Holder{Region: "a", Gateway: "g"}, spec.Holder{Region: "b", Gateway: "g"}, spec.Holder{Region: "c", Gateway: "g"}
	for _, out := range []int{1, 5, 60, 360} {
		x := newLeaseBench()
		x.uses[a], x.uses[b], x.uses[c] = 1000, 1000, 900_000
		x.run(twoGateways("c"), 30)
		if x.part(c) < 900_000 {
			t.Fatalf("before it leaves it has %d", x.part(c))
		}
		x.run(twoGateways(), out)
		x.run(twoGateways("c"), 30)
		if g := x.told[c]; g.Hold || x.part(c) < 900_000 {
			t.Errorf("30 s after it came back from %d s outside it has %d by number %d, hold %v", out, x.part(c), g.Number, g.Hold)
		}
	}
}

// TestLeaseOfARemovedGatewayCounts: what a gateway was leased before it left the spec is given to no other until it has
// lapsed, and then all of it is.
func TestLeaseOfARemovedGatewayCounts(t *testing.T) {
	a, b, c := spec.Holder{Region: "a", Gateway: "g"}, spec.Holder{Region: "b", Gateway: "g"}, spec.Holder{Region: "c", Gateway: "g"}
	x := newLeaseBench()
	x.uses[a], x.uses[b], x.uses[c] = 1000, 1000, 900_000
	x.run(twoGateways("c"), 30)
	held, since := x.part(c), x.now
	x.uses[a] = 1_000_000
	for x.now.Sub(since) < spec.LeaseFor {
		x.run(twoGateways(), 1)
		if sum := held + x.part(a) + x.part(b); sum > 1_000_000 {
			t.Fatalf("%s after it left, %d are leased together, of 1000000", x.now.Sub(since), sum)
		}
	}
	x.run(twoGateways(), 20)
	if x.part(a) < 900_000 {
		t.Errorf("when its lease has lapsed the others have %d and %d", x.part(a), x.part(b))
	}
}

// TestMoveKeepsWithinWhatIsFree: the first list after a hold does not promise what others have yet to give back, and a
// part rises only once the last list is acknowledged.
func TestMoveKeepsWithinWhatIsFree(t *testing.T) {
	for _, c := range []struct {
		name         string
		told, acked  bool
		target, free int64
		want         int64
	}{
		{"first list, others hold too much", false, false, 100, -30, 70},
		{"first list, others hold more than there is", false, false, 100, -1000, 0}, // the floor
		{"first list, something is free", false, false, 120, 50, 120},
		{"not acknowledged", true, false, 150, 50, 100},
		{"not acknowledged, and less", true, false, 40, 50, 40},
		{"acknowledged", true, true, 150, 50, 150},
		{"acknowledged, little is free", true, true, 150, 20, 120},
		{"acknowledged, nothing is free", true, true, 150, -20, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &holder{ruled: true, told: c.told, acked: c.acked, number: 5}
			s := &stake{holder: h}
			s.static[spec.Requests], s.held[spec.Requests], s.offered[spec.Requests] = 100, 100, 100
			s.target[spec.Requests] = c.target
			want := max(c.want, s.static.Floor()[spec.Requests])
			(&Leader{}).move(h, []*circle{{stakes: []*stake{s}}}, []spec.Allowance{{spec.Requests: c.free}})
			if got := s.offered[spec.Requests]; got != want {
				t.Errorf("offered %d, want %d", got, want)
			}
		})
	}
}
