package global

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/global/lease"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
)

const (
	// leaseEvery is how often the leader looks at who asks for what. Gateways are told at once of what has changed, and
	// with the next directive that the rest holds on.
	leaseEvery = 250 * time.Millisecond
	// grantsLast is how old grants may be: older ones are those of a node that was paused.
	grantsLast = time.Second
)

// grants are what the leader lets gateways spend, as of its last step.
type grants struct {
	of   map[spec.Holder]*uplink.Grant
	made time.Time
}

// leaser leases shared limits to gateways while this node leads. It belongs to one goroutine.
type leaser struct {
	s      *Server
	leader *lease.Leader // nil while another leads
	spec   *spec.Spec    // of which shared says whether anything is
	shared bool
	listed atomic.Int64
	out    atomic.Int64
}

func (s *Server) lease(ctx context.Context) {
	for sleep(ctx, leaseEvery) {
		s.leaser.step(time.Now())
	}
}

func (l *leaser) step(now time.Time) {
	v := l.s.view.Load()
	if v == nil || v.from != agreedState || !l.s.node.IsLeader() || !l.shares(v.spec) {
		l.leader = nil
		l.s.grants.Store(nil)
		l.listed.Store(0)
		l.out.Store(0)
		return
	}
	if term := l.s.node.Status().Term; l.leader == nil || l.leader.Term() != term {
		l.leader = lease.New(term, now)
	}
	next := &grants{of: map[spec.Holder]*uplink.Grant{}, made: now}
	for id, g := range l.leader.Step(now, v.spec, l.s.reports(now)) {
		next.of[id] = wireGrant(g)
	}
	l.listed.Store(int64(l.leader.Listed()))
	l.out.Store(int64(l.leader.LeftOut))
	old := l.s.grants.Swap(next)
	if changed(old, next) {
		l.s.parent.Wake()
	}
}

// shares reports whether a spec has any limit that several gateways share.
func (l *leaser) shares(s *spec.Spec) bool {
	if l.spec == s {
		return l.shared
	}
	l.spec, l.shared = s, false
	for i := range s.Tenants {
		t := &s.Tenants[i]
		if t.Allowance() == (spec.Allowance{}) {
			continue
		}
		for _, c := range s.Circles(t) {
			l.shared = l.shared || c.Size() > 1
		}
	}
	return l.shared
}

// reports are what gateways said of tenants last.
func (s *Server) reports(now time.Time) []lease.Report {
	children := s.ingest.view(now).Children
	out := make([]lease.Report, 0, len(children))
	for i := range children {
		c := &children[i]
		out = append(out, lease.Report{
			Holder: spec.Holder{Region: c.Summary.Path.Region, Gateway: c.Summary.Path.Instance},
			Age:    c.Age, Holding: c.Summary.Holding, Uses: c.Summary.Uses,
		})
	}
	return out
}

func changed(old, next *grants) bool {
	if old == nil || len(old.of) != len(next.of) {
		return true
	}
	for id, g := range next.of {
		if was := old.of[id]; was == nil || was.Term != g.Term || was.Number != g.Number {
			return true
		}
	}
	return false
}

// grant is what a gateway is told now; nil from a node that does not lead, and from one that was paused.
func (s *Server) grant(to capacity.Path) *uplink.Grant {
	g := s.grants.Load()
	if g == nil || time.Since(g.made) > grantsLast || !s.node.IsLeader() {
		return nil
	}
	return g.of[spec.Holder{Region: to.Region, Gateway: to.Instance}]
}

func wireGrant(g *lease.Grant) *uplink.Grant {
	out := &uplink.Grant{Term: g.Term, Number: g.Number, Boot: g.Boot, Mark: g.Mark, Hold: g.Hold}
	for i := range g.Leases {
		l := &g.Leases[i]
		out.Leases = append(out.Leases, uplink.Lease{
			Tenant: l.Tenant, RequestsMilli: l.Part[spec.Requests], TokensMilli: l.Part[spec.Tokens], Concurrency: l.Part[spec.Concurrency],
			Day: l.Day, DayTokens: l.Part[spec.DayTokens], DayMicros: l.Part[spec.DayMicros],
		})
	}
	return out
}
