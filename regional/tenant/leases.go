package tenant

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Leases holds what this gateway may spend of limits that it shares with others. It has one writer at a time. Package
// global/quota documents the guarantees.
type Leases struct {
	startedAt    time.Time
	standalone   bool
	term, number uint64
	summaryAt    time.Time // time of the summary that the newest grant answers
	everGranted  bool      // a list was received since the start
	onHold       bool
	byTenant     map[string]TenantLease
}

// TenantLease is the lease of one tenant. The parts of budgets are for one day.
type TenantLease struct {
	Day    int64
	Limits spec.Quota
	OnHold bool // a hold followed: what exceeds the static share is revoked, also after a restart
}

// ReportedCap is the part of a budget as reported in a summary, for a limit of which whole is granted. It is never 0
// if there is one, because 0 means that nothing is leased.
func (p *TenantLease) ReportedCap(r spec.Resource, whole spec.Quota) int64 {
	if whole[r] == 0 {
		return 0
	}
	return max(p.Limits[r], 1)
}

// LeaseGrant is a grant of the leader. A hold lists nothing: every tenant has at most the static share.
type LeaseGrant struct {
	Term, Number uint64
	Hold         bool
	Leases       map[string]TenantLease
}

// NewLeases returns an empty Leases. A gateway without a global tier uses its static shares from the start.
func NewLeases(alone bool, now time.Time) *Leases {
	return &Leases{standalone: alone, startedAt: now, byTenant: map[string]TenantLease{}}
}

// ApplyGrant applies a grant that answers the summary made at base; false for one that is outdated or has expired in
// transit.
func (l *Leases) ApplyGrant(g LeaseGrant, base, now time.Time) bool {
	older := g.Term < l.term || g.Term == l.term && g.Number < l.number
	if older || base.After(now) || now.Sub(base) > spec.LeaseDuration {
		return false
	}
	if g.Term != l.term || base.After(l.summaryAt) {
		l.summaryAt = base
	}
	l.term, l.number, l.onHold = g.Term, g.Number, g.Hold
	if !g.Hold {
		l.byTenant, l.everGranted = g.Leases, true
	}
	return true
}

// ResetTerm makes grants of any term valid: Raft terms may start again in a new generation of the cluster. Earlier
// grants stay until then.
func (l *Leases) ResetTerm() { l.term, l.number = 0, 0 }

// LimitsFor is what a tenant may spend here at now, given its static share. day is the tenant's day, and used its
// usage in it.
func (l *Leases) LimitsFor(who string, static, used spec.Quota, day int64, now time.Time) spec.Quota {
	if l.standalone {
		return static
	}
	part, leased := l.byTenant[who]
	age, out := now.Sub(l.summaryAt), static
	switch {
	case !l.everGranted && now.Sub(l.startedAt) < spec.LeaseDuration+spec.LeaseTakeoverDelay:
		out = static.MinimumShare() // another gateway may still hold what this one had before its restart
	case !l.everGranted:
	case leased && age <= spec.LeaseDuration && !l.onHold:
		out = part.Limits
	case leased && age <= spec.LeaseDuration+spec.LeaseTakeoverDelay:
		out = static.ElementwiseMin(part.Limits)
	}
	for _, r := range [...]spec.Resource{spec.ResourceDayTokens, spec.ResourceDayMicros} {
		if out[r] = static[r]; leased && part.Day == day { // a cap neither expires nor rises by itself
			out[r] = part.Limits[r]
			if l.onHold || part.OnHold {
				out[r] = min(out[r], max(static[r], used[r]))
			}
		}
	}
	return out
}

// RestoreCap restores a cap from before a restart.
func (l *Leases) RestoreCap(who string, p TenantLease) {
	l.byTenant[who] = TenantLease{Day: p.Day, OnHold: p.OnHold, Limits: spec.Quota{spec.ResourceDayTokens: p.Limits[spec.ResourceDayTokens], spec.ResourceDayMicros: p.Limits[spec.ResourceDayMicros]}}
}

// LeaseOf is a tenant's lease as granted, whether in force or not.
func (l *Leases) LeaseOf(who string) (TenantLease, bool) {
	p, ok := l.byTenant[who]
	p.OnHold = p.OnHold || ok && l.onHold
	return p, ok
}

// NewestGrant is the newest grant and the age of the summary that it answers.
func (l *Leases) NewestGrant(now time.Time) (term, number uint64, age time.Duration) {
	return l.term, l.number, max(now.Sub(l.summaryAt), 0)
}

// IsInForce reports whether the leader's grants are in force.
func (l *Leases) IsInForce(now time.Time) bool {
	return !l.standalone && l.everGranted && !l.onHold && now.Sub(l.summaryAt) <= spec.LeaseDuration
}

// Len is the number of tenants with a lease.
func (l *Leases) Len() int { return len(l.byTenant) }
