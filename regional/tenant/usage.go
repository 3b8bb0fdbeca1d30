package tenant

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// ListUses lists demand and usage of tenants with shared limits for a summary: those with a lease first, then those
// with most demand, and the others in one entry without a name. It drops idle tenants.
func (l *Limiter) ListUses(now time.Time) []capacity.TenantUsage {
	var out []capacity.TenantUsage
	for name, a := range l.tenants {
		if a.isIdle(now) {
			delete(l.tenants, name)
			continue
		}
		if !a.terms.Shared {
			continue
		}
		a.startDay(a.terms.Budget.DayNumber(now))
		a.demand.decayTo(now)
		u := capacity.TenantUsage{
			Tenant: name, RequestsMilli: milliPerMinute(a.demand.requests), TokensMilli: milliPerMinute(a.demand.tokens), Running: int64(a.running),
			WantedConcurrency: int64(a.running) + min(roundToTwoDigits(a.demand.refused), 1<<20), Day: max(a.day, 0), DayTokens: a.spent[0], DayMicros: a.spent[1],
		}
		if p, ok := l.leases.LeaseOf(name); ok && p.Day == a.day {
			u.LeasedTokens, u.LeasedMicros = p.ReportedCap(spec.ResourceDayTokens, a.terms.Whole), p.ReportedCap(spec.ResourceDayMicros, a.terms.Whole)
		}
		if a.demand.requests < idleRequests {
			u.RequestsMilli, u.TokensMilli = 0, 0
		}
		out = append(out, u)
	}
	if len(out) > capacity.MaxTenantUsages {
		out = l.truncateUses(out)
	}
	slices.SortFunc(out, func(a, b capacity.TenantUsage) int { return strings.Compare(a.Tenant, b.Tenant) })
	return out
}

// ListAllUses lists demand and usage of all tenants, for operators. It has no leases and changes nothing.
func (l *Limiter) ListAllUses(now time.Time) []capacity.TenantUsage {
	out := make([]capacity.TenantUsage, 0, len(l.tenants))
	for name, a := range l.tenants {
		demand := a.demand
		demand.decayTo(now)
		u := capacity.TenantUsage{Tenant: name, RequestsMilli: milliPerMinute(demand.requests), TokensMilli: milliPerMinute(demand.tokens), Running: int64(a.running)}
		if b := a.terms.Budget; b != nil && b.DayNumber(now) == a.day { // usage of an earlier day no longer counts
			u.Day, u.DayTokens, u.DayMicros = max(a.day, 0), a.spent[0], a.spent[1]
		}
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b capacity.TenantUsage) int { return strings.Compare(a.Tenant, b.Tenant) })
	return out
}

// truncateUses cuts a list to the length that a summary can hold.
func (l *Limiter) truncateUses(all []capacity.TenantUsage) []capacity.TenantUsage {
	slices.SortFunc(all, func(a, b capacity.TenantUsage) int {
		_, hasA := l.leases.LeaseOf(a.Tenant)
		_, hasB := l.leases.LeaseOf(b.Tenant)
		if hasA != hasB {
			if hasA {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.TokensMilli, a.TokensMilli), cmp.Compare(b.RequestsMilli, a.RequestsMilli), strings.Compare(a.Tenant, b.Tenant))
	})
	rest := capacity.TenantUsage{}
	for _, u := range all[capacity.MaxTenantUsages-1:] {
		rest.RequestsMilli += u.RequestsMilli
		rest.TokensMilli += u.TokensMilli
		rest.Running += u.Running
	}
	return append(all[:capacity.MaxTenantUsages-1:capacity.MaxTenantUsages-1], rest)
}

// DayUse is a tenant's usage and limits of a day, as persisted.
type DayUse struct {
	Tenant               string
	Day                  int64
	Tokens, Micros       int64
	Leased               bool // the caps are from the leader
	Held                 bool // and a hold followed
	CapTokens, CapMicros int64
}

// ListDayUse lists the tenants with usage today and a budget. A restored tenant without a request since is listed as
// restored, because it is not known yet whether it has a budget.
func (l *Limiter) ListDayUse() (out []DayUse) {
	for name, a := range l.tenants {
		unlimited := a.terms.Whole[spec.ResourceDayTokens] == 0 && a.terms.Whole[spec.ResourceDayMicros] == 0
		if a.spent == [2]int64{} || unlimited && a.terms.Budget != nil {
			continue
		}
		d := DayUse{Tenant: name, Day: a.day, Tokens: a.spent[0], Micros: a.spent[1]}
		if p, ok := l.leases.LeaseOf(name); ok && p.Day == a.day {
			d.Leased, d.Held, d.CapTokens, d.CapMicros = true, p.OnHold, p.Limits[spec.ResourceDayTokens], p.Limits[spec.ResourceDayMicros]
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b DayUse) int { return strings.Compare(a.Tenant, b.Tenant) })
	return out
}

// RestoreDayUse restores what ListDayUse listed. A past day is dropped when its tenant is next used.
func (l *Limiter) RestoreDayUse(days []DayUse) {
	for _, d := range days {
		if d.Tokens < 0 || d.Micros < 0 {
			continue
		}
		a := l.stateOf(d.Tenant)
		l.restoredWithoutTerms[d.Tenant] = true
		a.day, a.spent = d.Day, [2]int64{d.Tokens, d.Micros}
		if d.Leased {
			p := TenantLease{Day: d.Day, OnHold: d.Held}
			p.Limits[spec.ResourceDayTokens], p.Limits[spec.ResourceDayMicros] = d.CapTokens, d.CapMicros
			l.leases.RestoreCap(d.Tenant, p)
		}
	}
}

// SetTerms sets the terms of restored tenants without a request since, so that ListUses reports their usage of shared
// budgets. of returns false for a tenant that is not in the spec: its state is unchanged.
func (l *Limiter) SetTerms(of func(name string) (Terms, bool)) {
	for name := range l.restoredWithoutTerms {
		if a := l.tenants[name]; a != nil && a.terms.Budget == nil {
			if t, ok := of(name); ok {
				a.terms = t
			}
		}
	}
	clear(l.restoredWithoutTerms)
}
