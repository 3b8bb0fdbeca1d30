package tenant

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// Uses lists what tenants that share a limit ask for and have used, as a summary carries it: those with a lease first,
// then those that ask for most, and the rest in one entry without a name. Idle accounts are forgotten on the way.
func (l *Limiter) Uses(now time.Time) []capacity.Use {
	var out []capacity.Use
	for name, a := range l.accounts {
		if a.idle(now) {
			delete(l.accounts, name)
			continue
		}
		if !a.terms.Shared {
			continue
		}
		a.turn(a.terms.Budget.Day(now))
		a.asked.decay(now)
		u := capacity.Use{
			Tenant: name, RequestsMilli: perMinute(a.asked.requests), TokensMilli: perMinute(a.asked.tokens), Running: int64(a.running),
			Wanted: int64(a.running) + min(round(a.asked.turned), 1<<20), Day: max(a.day, 0), DayTokens: a.spent[0], DayMicros: a.spent[1],
		}
		if p, ok := l.leases.Part(name); ok && p.Day == a.day {
			u.CapTokens, u.CapMicros = p.Cap(spec.DayTokens, a.terms.Whole), p.Cap(spec.DayMicros, a.terms.Whole)
		}
		if a.asked.requests < idleAsked {
			u.RequestsMilli, u.TokensMilli = 0, 0
		}
		out = append(out, u)
	}
	if len(out) > capacity.MaxUses {
		out = l.topmost(out)
	}
	slices.SortFunc(out, func(a, b capacity.Use) int { return strings.Compare(a.Tenant, b.Tenant) })
	return out
}

// topmost cuts a list to what a summary takes.
func (l *Limiter) topmost(all []capacity.Use) []capacity.Use {
	slices.SortFunc(all, func(a, b capacity.Use) int {
		_, hasA := l.leases.Part(a.Tenant)
		_, hasB := l.leases.Part(b.Tenant)
		if hasA != hasB {
			if hasA {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.TokensMilli, a.TokensMilli), cmp.Compare(b.RequestsMilli, a.RequestsMilli), strings.Compare(a.Tenant, b.Tenant))
	})
	rest := capacity.Use{}
	for _, u := range all[capacity.MaxUses-1:] {
		rest.RequestsMilli += u.RequestsMilli
		rest.TokensMilli += u.TokensMilli
		rest.Running += u.Running
	}
	return append(all[:capacity.MaxUses-1:capacity.MaxUses-1], rest)
}

// Day is what a tenant has used of a day, and what it may, as it is written down over a restart.
type Day struct {
	Tenant               string
	Day                  int64
	Tokens, Micros       int64
	Leased               bool // the caps are the leader's
	Held                 bool // and a hold came after them
	CapTokens, CapMicros int64
}

// Days lists the tenants that have used something today and have a budget. A restored tenant that has not asked since is
// listed as it was restored, whether it has a budget is not known yet.
func (l *Limiter) Days() (out []Day) {
	for name, a := range l.accounts {
		unlimited := a.terms.Whole[spec.DayTokens] == 0 && a.terms.Whole[spec.DayMicros] == 0
		if a.spent == [2]int64{} || unlimited && a.terms.Budget != nil {
			continue
		}
		d := Day{Tenant: name, Day: a.day, Tokens: a.spent[0], Micros: a.spent[1]}
		if p, ok := l.leases.Part(name); ok && p.Day == a.day {
			d.Leased, d.Held, d.CapTokens, d.CapMicros = true, p.Held, p.Part[spec.DayTokens], p.Part[spec.DayMicros]
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b Day) int { return strings.Compare(a.Tenant, b.Tenant) })
	return out
}

// Restore puts back what Days listed. A day that is over goes when its tenant is next seen.
func (l *Limiter) Restore(days []Day) {
	for _, d := range days {
		if d.Tokens < 0 || d.Micros < 0 {
			continue
		}
		a := l.account(d.Tenant)
		l.restored[d.Tenant] = true
		a.day, a.spent = d.Day, [2]int64{d.Tokens, d.Micros}
		if d.Leased {
			p := Part{Day: d.Day, Held: d.Held}
			p.Part[spec.DayTokens], p.Part[spec.DayMicros] = d.CapTokens, d.CapMicros
			l.leases.Restore(d.Tenant, p)
		}
	}
}

// SetTerms gives restored tenants that have not asked yet their terms, so that Uses lists what they have used of a shared
// budget. of is false for a tenant that the spec does not have: it keeps its account as it is.
func (l *Limiter) SetTerms(of func(name string) (Terms, bool)) {
	for name := range l.restored {
		if a := l.accounts[name]; a != nil && a.terms.Budget == nil {
			if t, ok := of(name); ok {
				a.terms = t
			}
		}
	}
	clear(l.restored)
}
