package global

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/global/quota"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
)

const (
	// quotaInterval is how often the leader evaluates which gateways demand what. Gateways receive changes at once,
	// and the confirmation of unchanged leases with the next directive.
	quotaInterval = 250 * time.Millisecond
	// maxGrantAge bounds the age of grants: older ones come from a node that was paused.
	maxGrantAge = time.Second
)

// grantSet holds what the leader lets gateways spend, as of its last step.
type grantSet struct {
	byHolder map[spec.LeaseHolder]*uplink.QuotaGrant
	madeAt   time.Time
}

// quotaLeaser leases shared limits to gateways while this node is the leader. It belongs to one goroutine.
type quotaLeaser struct {
	s               *Server
	allocator       *quota.Allocator // nil while another node leads
	spec            *spec.Spec       // the spec that shared was computed from
	shared          bool
	listedTenants   atomic.Int64
	unleasedTenants atomic.Int64
	grants          atomic.Pointer[grantSet] // nil while another node leads
}

func (l *quotaLeaser) runQuotaLeaser(ctx context.Context) {
	for sleepFor(ctx, quotaInterval) {
		l.grantLeases(time.Now())
	}
}

func (l *quotaLeaser) grantLeases(now time.Time) {
	v := l.s.snapshot.Load()
	if v == nil || v.source != agreedState || !l.s.node.IsLeader() || !l.hasSharedQuota(v.Spec) {
		l.allocator = nil
		l.grants.Store(nil)
		l.listedTenants.Store(0)
		l.unleasedTenants.Store(0)
		return
	}
	if term := l.s.node.Status().Term; l.allocator == nil || l.allocator.Term() != term {
		l.allocator = quota.New(term, now)
	}
	l.allocator.WallShift = l.s.clock.wallShift()
	next := &grantSet{byHolder: map[spec.LeaseHolder]*uplink.QuotaGrant{}, madeAt: now}
	for id, g := range l.allocator.UpdateGrants(now, v.Spec, l.quotaReports(now)) {
		next.byHolder[id] = toUplinkGrant(g)
	}
	l.listedTenants.Store(int64(l.allocator.Listed()))
	l.unleasedTenants.Store(int64(l.allocator.Unlisted))
	old := l.grants.Swap(next)
	if grantsChanged(old, next) {
		l.s.parent.PushDirectives()
	}
}

// hasSharedQuota reports whether a spec has any limit that several gateways share.
func (l *quotaLeaser) hasSharedQuota(s *spec.Spec) bool {
	if l.spec == s {
		return l.shared
	}
	l.spec, l.shared = s, false
	for i := range s.Tenants {
		t := &s.Tenants[i]
		if t.TotalQuota() == (spec.Quota{}) {
			continue
		}
		for _, c := range s.SharedQuotas(t) {
			l.shared = l.shared || c.HolderCount() > 1
		}
	}
	return l.shared
}

// quotaReports returns the gateways' last reports on tenants.
func (l *quotaLeaser) quotaReports(now time.Time) []quota.HolderReport {
	children := l.s.summaries.capacityView(now).Children
	out := make([]quota.HolderReport, 0, len(children))
	for i := range children {
		c := &children[i]
		out = append(out, quota.HolderReport{
			Holder: spec.LeaseHolder{Region: c.Summary.Path.Region, Gateway: c.Summary.Path.Instance},
			Age:    c.Age, Holding: c.Summary.HeldLeases, Uses: c.Summary.TenantUsages,
		})
	}
	return out
}

func grantsChanged(old, next *grantSet) bool {
	if old == nil || len(old.byHolder) != len(next.byHolder) {
		return true
	}
	for id, g := range next.byHolder {
		if was := old.byHolder[id]; was == nil || was.Term != g.Term || was.Number != g.Number {
			return true
		}
	}
	return false
}

// grantFor returns the grant for a gateway; nil on a node that does not lead or that was paused.
func (l *quotaLeaser) grantFor(to capacity.Path) *uplink.QuotaGrant {
	g := l.grants.Load()
	if g == nil || time.Since(g.madeAt) > maxGrantAge || !l.s.node.IsLeader() {
		return nil
	}
	return g.byHolder[spec.LeaseHolder{Region: to.Region, Gateway: to.Instance}]
}

func toUplinkGrant(g *quota.LeaseGrant) *uplink.QuotaGrant {
	out := &uplink.QuotaGrant{Term: g.Term, Number: g.Number, Boot: g.Boot, Mark: g.Mark, Hold: g.Hold}
	for i := range g.Leases {
		l := &g.Leases[i]
		out.Leases = append(out.Leases, uplink.QuotaLease{
			Tenant: l.Tenant, RequestsMilli: l.Amount[spec.ResourceRequests], TokensMilli: l.Amount[spec.ResourceTokens], Concurrency: l.Amount[spec.ResourceConcurrency],
			Day: l.Day, DayTokens: l.Amount[spec.ResourceDayTokens], DayMicros: l.Amount[spec.ResourceDayMicros],
		})
	}
	return out
}
