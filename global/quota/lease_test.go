package quota

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// TestSplitAmountsAddUp: for any demand, targets never exceed the amount unless the floors do, and leave nothing
// over.
func TestSplitAmountsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := spec.Resource(rapid.IntRange(0, int(spec.NumResources)-1).Draw(t, "resource"))
		n := rapid.IntRange(1, 9).Draw(t, "gateways")
		c := &sharedQuota{}
		c.limit[r] = rapid.Int64Range(1, 1<<45).Draw(t, "whole")
		var spent, floors int64
		for range n {
			s := &quotaShare{holder: &leaseHolder{followsLists: true}}
			s.static[r] = c.limit[r] / int64(n)
			if r >= spec.ResourceDayTokens {
				s.use.DayTokens = rapid.Int64Range(0, c.limit[r]/int64(n)).Draw(t, "spent")
				s.use.DayMicros = s.use.DayTokens
			}
			s.use.RequestsMilli, s.use.TokensMilli = rapid.Int64Range(0, 1<<46).Draw(t, "requests"), rapid.Int64Range(0, 1<<46).Draw(t, "tokens")
			s.use.WantedConcurrency = rapid.Int64Range(0, 1<<46).Draw(t, "wanted")
			spent, floors = spent+s.budgetSpent(r), floors+s.floorAmount(r)
			c.shares = append(c.shares, s)
		}
		amount := rapid.Int64Range(floors, c.limit[r]).Draw(t, "amount")
		if r >= spec.ResourceDayTokens {
			amount = max(amount, spent)
		}
		var sum int64
		for i, x := range c.splitAmount(r, amount, c.shares) {
			sum += x
			if x < c.shares[i].floorAmount(r) || r >= spec.ResourceDayTokens && x < c.shares[i].budgetSpent(r)-1 {
				t.Fatalf("gateway %d gets %d, less than its floor %d or than it has used", i, x, c.shares[i].floorAmount(r))
			}
		}
		if sum > amount || float64(amount-sum) > 1e-9*float64(amount)+float64(n) {
			t.Fatalf("%d of %d is given out", sum, amount)
		}
	})
}

// TestNumberOfListedTenantsIsBounded: tenants beyond the capacity of the list keep their static shares, and are
// counted.
func TestNumberOfListedTenantsIsBounded(t *testing.T) {
	s := &spec.Spec{Regions: []spec.Region{
		{Name: "a", Gateways: []spec.Gateway{{Name: "g"}}}, {Name: "b", Gateways: []spec.Gateway{{Name: "g"}}},
	}}
	var reports []HolderReport
	for _, r := range []string{"a", "b"} {
		reports = append(reports, HolderReport{Holder: spec.LeaseHolder{Region: r, Gateway: "g"}})
	}
	for n := range maxListed + 5 {
		name := fmt.Sprintf("t%05d", n)
		s.Tenants = append(s.Tenants, spec.Tenant{Name: name, Limits: spec.TenantLimits{Scope: spec.ScopeGlobal, RequestsPerMinute: 60}})
		reports[0].Uses = append(reports[0].Uses, capacity.TenantUsage{Tenant: name, RequestsMilli: 60_000})
	}
	now := time.Unix(1000, 0)
	l := New(1, now)
	for n := range uint64(4) {
		now = now.Add(3 * time.Second)
		for i := range reports {
			reports[i].Holding = capacity.HeldLeases{Term: 1, Number: n}
		}
		for _, g := range l.UpdateGrants(now, s, reports) {
			if len(g.Leases) > maxListed {
				t.Fatalf("%d leases in a list", len(g.Leases))
			}
		}
	}
	if l.Listed() != maxListed || l.Unlisted != 5 {
		t.Errorf("%d listed, %d left out", l.Listed(), l.Unlisted)
	}
}

// TestNewTermWaitsForTheOldLeader: a new leader first sends nothing, then holds, and only then leases.
func TestNewTermWaitsForTheOldLeader(t *testing.T) {
	s := &spec.Spec{
		Regions: []spec.Region{{Name: "a", Gateways: []spec.Gateway{{Name: "g"}}}, {Name: "b", Gateways: []spec.Gateway{{Name: "g"}}}},
		Tenants: []spec.Tenant{{Name: "acme", Limits: spec.TenantLimits{Scope: spec.ScopeGlobal, RequestsPerMinute: 60}}},
	}
	a, b := spec.LeaseHolder{Region: "a", Gateway: "g"}, spec.LeaseHolder{Region: "b", Gateway: "g"}
	now := time.Unix(1000, 0)
	l := New(4, now)
	said := func(term, number uint64) []HolderReport {
		h := capacity.HeldLeases{Term: term, Number: number}
		return []HolderReport{{Holder: a, Holding: h, Uses: []capacity.TenantUsage{{Tenant: "acme", RequestsMilli: 100_000}}}, {Holder: b, Holding: h}}
	}
	if got := l.UpdateGrants(now.Add(time.Second), s, said(3, 9)); got != nil {
		t.Fatalf("within a second the new leader sends %+v", got[a])
	}
	now = now.Add(3 * time.Second)
	if got := l.UpdateGrants(now, s, said(3, 9)); len(got) != 2 || !got[a].Hold || got[a].Term != 4 || len(got[a].Leases) != 0 {
		t.Fatalf("first it sends %+v", got[a])
	}
	got := l.UpdateGrants(now.Add(time.Second), s, said(4, 1))
	if got[a] == nil || got[a].Hold || got[a].Number != 2 {
		t.Fatalf("after all hold it sends %+v", got[a])
	}
	for n := uint64(2); n < 6; n++ {
		now = now.Add(time.Second)
		got = l.UpdateGrants(now, s, said(4, n))
	}
	if x := got[a].Leases[0].Amount[spec.ResourceRequests] + got[b].Leases[0].Amount[spec.ResourceRequests]; x > 60_000 || got[a].Leases[0].Amount[spec.ResourceRequests] < 50_000 {
		t.Fatalf("then it leases %+v and %+v", got[a].Leases, got[b].Leases)
	}
}

// TestHeldBudgetCapIsTheReportedOne: a gateway that holds less of a budget than its static share does not count as
// holding all of it: a supposed reduction would then give it what others have used.
func TestHeldBudgetCapIsTheReportedOne(t *testing.T) {
	for _, c := range []struct{ used, leased, held int64 }{
		{0, 0, 500},     // nothing is leased: the static share
		{600, 0, 600},   // of the day before a restart without a record
		{100, 300, 300}, // less than the static share
		{0, 1, 1},
		{100, 700, 500}, // the hold has removed the excess over it
		{600, 700, 600}, // and leaves what is used
		{310, 300, 300}, // a stream continued
	} {
		s := quotaShare{holder: &leaseHolder{followsLists: true}, static: spec.Quota{spec.ResourceDayTokens: 500, spec.ResourceDayMicros: 500}}
		s.use.DayTokens, s.use.LeasedTokens, s.use.DayMicros, s.use.LeasedMicros = c.used, c.leased, c.used, c.leased
		s.resetToStatic()
		for _, r := range []spec.Resource{spec.ResourceDayTokens, spec.ResourceDayMicros} {
			if s.acknowledged[r] != c.held || s.offered[r] != c.held || s.maxSpend(time.Time{})[r] != max(c.held, c.used) {
				t.Errorf("%+v: held %d, offered %d, at most %d", c, s.acknowledged[r], s.offered[r], s.maxSpend(time.Time{})[r])
			}
		}
	}
}

// allocatorFixture steps an Allocator with gateways that acknowledge what they receive, a second at a time.
type allocatorFixture struct {
	now     time.Time
	leader  *Allocator
	granted map[spec.LeaseHolder]*LeaseGrant // what each has in force
	uses    map[spec.LeaseHolder]int64       // the demand of each, in requests/1000 per minute
}

func twoGatewaySpec(extra ...string) *spec.Spec {
	s := &spec.Spec{
		Regions: []spec.Region{{Name: "a", Gateways: []spec.Gateway{{Name: "g"}}}, {Name: "b", Gateways: []spec.Gateway{{Name: "g"}}}},
		Tenants: []spec.Tenant{{Name: "acme", Limits: spec.TenantLimits{Scope: spec.ScopeGlobal, RequestsPerMinute: 1000}}},
	}
	for _, name := range extra {
		s.Regions = append(s.Regions, spec.Region{Name: name, Gateways: []spec.Gateway{{Name: "g"}}})
	}
	return s
}

func newAllocatorFixture() *allocatorFixture {
	b := &allocatorFixture{now: time.Unix(1000, 0), granted: map[spec.LeaseHolder]*LeaseGrant{}, uses: map[spec.LeaseHolder]int64{}}
	b.leader = New(4, b.now)
	return b
}

// runSeconds steps for some seconds. silent gateways send and receive nothing.
func (b *allocatorFixture) runSeconds(s *spec.Spec, seconds int, silent ...spec.LeaseHolder) {
	for range seconds {
		b.now = b.now.Add(time.Second)
		var reports []HolderReport
		for id, n := range b.uses {
			if slices.Contains(silent, id) {
				continue
			}
			r := HolderReport{Holder: id, Uses: []capacity.TenantUsage{{Tenant: "acme", RequestsMilli: n}}}
			if g := b.granted[id]; g != nil {
				r.Holding = capacity.HeldLeases{Term: g.Term, Number: g.Number}
			}
			reports = append(reports, r)
		}
		for id, g := range b.leader.UpdateGrants(b.now, s, reports) {
			if was := b.granted[id]; was == nil || g.Term > was.Term || g.Term == was.Term && g.Number >= was.Number {
				b.granted[id] = g
			}
		}
	}
}

func (b *allocatorFixture) leasedRequests(id spec.LeaseHolder) int64 {
	if g := b.granted[id]; g != nil && len(g.Leases) > 0 {
		return g.Leases[0].Amount[spec.ResourceRequests]
	}
	return 0
}

// TestReaddedGatewayGetsItsLease: a gateway that leaves the spec and comes back in the same term, soon or after its
// lease has expired, gets a list with a greater number than the one that it holds.
func TestReaddedGatewayGetsItsLease(t *testing.T) {
	a, b, c := spec.LeaseHolder{Region: "a", Gateway: "g"}, spec.LeaseHolder{Region: "b", Gateway: "g"}, spec.LeaseHolder{Region: "c", Gateway: "g"}
	for _, out := range []int{1, 5, 60, 360} {
		x := newAllocatorFixture()
		x.uses[a], x.uses[b], x.uses[c] = 1000, 1000, 900_000
		x.runSeconds(twoGatewaySpec("c"), 30)
		if x.leasedRequests(c) < 900_000 {
			t.Fatalf("before it leaves it has %d", x.leasedRequests(c))
		}
		before := x.granted[c].Number
		x.runSeconds(twoGatewaySpec(), out)
		x.runSeconds(twoGatewaySpec("c"), 30)
		if g := x.granted[c]; g.Number <= before || g.Hold || x.leasedRequests(c) < 900_000 {
			t.Errorf("30 s after it came back from %d s outside it has %d by number %d after %d, hold %v", out, x.leasedRequests(c), g.Number, before, g.Hold)
		}
	}
}

// TestLeaseOfRemovedGatewayCountsUntilItLapses: the lease of a gateway that left the spec goes to no other gateway
// until it has expired, and then all of it does.
func TestLeaseOfRemovedGatewayCountsUntilItLapses(t *testing.T) {
	a, b, c := spec.LeaseHolder{Region: "a", Gateway: "g"}, spec.LeaseHolder{Region: "b", Gateway: "g"}, spec.LeaseHolder{Region: "c", Gateway: "g"}
	x := newAllocatorFixture()
	x.uses[a], x.uses[b], x.uses[c] = 1000, 1000, 900_000
	x.runSeconds(twoGatewaySpec("c"), 30)
	held, since := x.leasedRequests(c), x.now
	x.uses[a] = 1_000_000
	for x.now.Sub(since) < spec.LeaseDuration {
		x.runSeconds(twoGatewaySpec(), 1)
		if sum := held + x.leasedRequests(a) + x.leasedRequests(b); sum > 1_000_000 {
			t.Fatalf("%s after it left, %d are leased together, of 1000000", x.now.Sub(since), sum)
		}
	}
	x.runSeconds(twoGatewaySpec(), 20)
	if x.leasedRequests(a) < 900_000 {
		t.Errorf("when its lease has lapsed the others have %d and %d", x.leasedRequests(a), x.leasedRequests(b))
	}
}

// TestMovesStayWithinFreeAmounts: the first list after a hold does not promise what others have yet to give back, and
// a part rises only once the last list is acknowledged.
func TestMovesStayWithinFreeAmounts(t *testing.T) {
	for _, c := range []struct {
		name         string
		sent, acked  bool
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
			h := &leaseHolder{followsLists: true, listSent: c.sent, acked: c.acked, number: 5}
			s := &quotaShare{holder: h}
			s.static[spec.ResourceRequests], s.acknowledged[spec.ResourceRequests], s.offered[spec.ResourceRequests] = 100, 100, 100
			s.target[spec.ResourceRequests] = c.target
			want := max(c.want, s.static.MinimumShare()[spec.ResourceRequests])
			(&Allocator{}).moveToTargets(h, []*sharedQuota{{shares: []*quotaShare{s}}}, []spec.Quota{{spec.ResourceRequests: c.free}})
			if got := s.offered[spec.ResourceRequests]; got != want {
				t.Errorf("offered %d, want %d", got, want)
			}
		})
	}
}
