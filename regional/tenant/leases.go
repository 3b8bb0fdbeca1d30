package tenant

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Leases are what this gateway may spend of limits that it shares with others. They have one writer at a time. What they
// promise, and why, stands in the documentation of package global/lease.
type Leases struct {
	began        time.Time
	alone        bool
	term, number uint64
	base         time.Time // when the statement was made that the newest grant answers
	listed       bool      // a list came since the start
	hold         bool
	of           map[string]Part
}

// Part is a lease of one tenant. The parts of budgets are for one day.
type Part struct {
	Day  int64
	Part spec.Allowance
	Held bool // a hold came after it: what it has beyond the static share is void, also after a restart
}

// Cap is the part of a budget as a statement tells it, of a limit of which whole is given: never 0 where there is one,
// which would say that nothing is leased.
func (p *Part) Cap(r spec.Resource, whole spec.Allowance) int64 {
	if whole[r] == 0 {
		return 0
	}
	return max(p.Part[r], 1)
}

// Grant is the leader's word. A hold lists nothing: nobody more than the static share, or less where it is less.
type Grant struct {
	Term, Number uint64
	Hold         bool
	Parts        map[string]Part
}

// NewLeases begins without any. A gateway with no tier above it is alone: it has its static shares from the beginning.
func NewLeases(alone bool, now time.Time) *Leases {
	return &Leases{alone: alone, began: now, of: map[string]Part{}}
}

// Take takes a grant that answers a statement made at base; false for one that is overtaken or has lapsed on its way.
func (l *Leases) Take(g Grant, base, now time.Time) bool {
	older := g.Term < l.term || g.Term == l.term && g.Number < l.number
	if older || base.After(now) || now.Sub(base) > spec.LeaseFor {
		return false
	}
	if g.Term != l.term || base.After(l.base) {
		l.base = base
	}
	l.term, l.number, l.hold = g.Term, g.Number, g.Hold
	if !g.Hold {
		l.of, l.listed = g.Parts, true
	}
	return true
}

// Reset takes grants of any term from now on: Raft terms may begin again in a new generation of the cluster. What was granted
// stays until then.
func (l *Leases) Reset() { l.term, l.number = 0, 0 }

// Allow is what a tenant may spend here at now, of whose limits the static share is given. day is the tenant's, and used
// what was used in it.
func (l *Leases) Allow(who string, static, used spec.Allowance, day int64, now time.Time) spec.Allowance {
	if l.alone {
		return static
	}
	part, leased := l.of[who]
	age, out := now.Sub(l.base), static
	switch {
	case !l.listed && now.Sub(l.began) < spec.LeaseFor+spec.LeaseGap:
		out = static.Floor() // another may still have what this one had before it started again
	case !l.listed:
	case leased && age <= spec.LeaseFor && !l.hold:
		out = part.Part
	case leased && age <= spec.LeaseFor+spec.LeaseGap:
		out = static.Min(part.Part)
	}
	for _, r := range [...]spec.Resource{spec.DayTokens, spec.DayMicros} {
		if out[r] = static[r]; leased && part.Day == day { // a cap neither lapses nor rises by itself
			out[r] = part.Part[r]
			if l.hold || part.Held {
				out[r] = min(out[r], max(static[r], used[r]))
			}
		}
	}
	return out
}

// Restore puts a cap of before a restart in force.
func (l *Leases) Restore(who string, p Part) {
	l.of[who] = Part{Day: p.Day, Held: p.Held, Part: spec.Allowance{spec.DayTokens: p.Part[spec.DayTokens], spec.DayMicros: p.Part[spec.DayMicros]}}
}

// Part is a tenant's lease as it was granted, in force or not.
func (l *Leases) Part(who string) (Part, bool) {
	p, ok := l.of[who]
	p.Held = p.Held || ok && l.hold
	return p, ok
}

// Status is the newest grant, and how long ago the statement was made that it answers.
func (l *Leases) Status(now time.Time) (term, number uint64, age time.Duration) {
	return l.term, l.number, max(now.Sub(l.base), 0)
}

// InForce says that the leader's word holds.
func (l *Leases) InForce(now time.Time) bool {
	return !l.alone && l.listed && !l.hold && now.Sub(l.base) <= spec.LeaseFor
}

// Len is the number of tenants with a lease.
func (l *Leases) Len() int { return len(l.of) }
