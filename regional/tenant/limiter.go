package tenant

import (
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
)

// MaxTenants bounds a Limiter. Only tenants of the spec are ever admitted, so that it is never reached by outsiders.
const MaxTenants = 100_000

// leaseSoon is how soon a lease follows what is asked for: who is refused for want of one need not wait for longer, unless
// the whole limit is used up.
const leaseSoon = 2 * time.Second

// Limiter holds the use of every tenant. It has one writer at a time: callers that share it lock it.
type Limiter struct {
	accounts map[string]*account
	leases   *Leases
	restored map[string]bool // accounts whose terms are not known yet
}

// Terms are what the spec allows a tenant.
type Terms struct {
	Whole  spec.Allowance // 0: unlimited
	Static spec.Allowance // this gateway's share
	Shared bool           // with other gateways
	Budget *spec.Budget
}

// TermsOf reads the terms of a tenant at a gateway.
func TermsOf(s *spec.Spec, t *spec.Tenant, h spec.Holder) Terms {
	x := Terms{Whole: t.Allowance(), Budget: &t.Budget}
	c := s.CircleOf(t, h.Region)
	x.Static, x.Shared = c.Static(x.Whole, h), c.Size() > 1
	return x
}

// Ask is what a request is reckoned to cost: prompt and output tokens, and millionths of a dollar.
type Ask struct {
	Tokens int
	Micros int64
}

// Lease is one admitted request. It must be settled once.
type Lease struct {
	tenant    string
	reserved  int
	ask       Ask
	metered   bool // tokens were limited when it was admitted
	Throttled bool // the day's budget is spent, and the tenant may go on slowly
}

// Denial says which limit stands in the way and when it will not.
type Denial struct {
	Code  string // one of the codes of package openai
	Retry time.Duration
}

// Left is what remains of a tenant's limits, for the x-ratelimit headers.
type Left struct {
	Requests, Tokens           int           // whole requests and tokens that could be used now
	ResetRequests, ResetTokens time.Duration // until the buckets are full again
}

// NewLimiter makes a Limiter in which nobody has used anything. Of limits that are shared it spends what is leased.
func NewLimiter(leases *Leases) *Limiter {
	return &Limiter{accounts: map[string]*account{}, leases: leases, restored: map[string]bool{}}
}

// Enter counts a request as under way before its cost is known; false when the tenant has as many as it may. What enters
// must be admitted, or leave.
func (l *Limiter) Enter(name string, terms Terms, now time.Time) (Denial, bool) {
	a := l.account(name)
	a.terms = terms
	here := l.here(name, a, now)
	if terms.Whole[spec.Concurrency] > 0 && int64(a.running) >= here[spec.Concurrency] {
		a.asked.decay(now)
		a.asked.requests++
		a.asked.turned++
		return Denial{Code: openai.CodeConcurrency, Retry: time.Second}, false
	}
	a.running++
	return Denial{}, true
}

// Leave ends a request that has entered and was not admitted.
func (l *Limiter) Leave(name string) {
	if a := l.accounts[name]; a != nil {
		a.running = max(a.running-1, 0)
	}
}

// Admit takes one request out of the tenant's limits, all or nothing. Reserving more than a whole minute's tokens takes
// them all: a long request waits for a full bucket, not for ever.
func (l *Limiter) Admit(name string, terms Terms, ask Ask, now time.Time) (Lease, Denial, bool) {
	if d, ok := l.Enter(name, terms, now); !ok {
		l.account(name).asked.tokens += float64(ask.Tokens)
		return Lease{}, d, false
	}
	lease, d, ok := l.AdmitEntered(name, terms, ask, now)
	if !ok {
		l.Leave(name)
	}
	return lease, d, ok
}

// AdmitEntered is Admit for a request that has entered. One that is denied must still leave.
func (l *Limiter) AdmitEntered(name string, terms Terms, ask Ask, now time.Time) (Lease, Denial, bool) {
	a := l.account(name)
	a.terms = terms
	here := l.here(name, a, now)
	a.asked.decay(now)
	a.asked.requests++
	a.asked.tokens += float64(ask.Tokens)
	lease := Lease{tenant: name, ask: ask}
	if a.overBudget(here, ask) {
		if terms.Budget.WhenSpent != spec.SpentThrottle {
			return Lease{}, Denial{Code: openai.CodeQuota, Retry: a.nextDay(now)}, false
		}
		if a.running > 1 { // it is one of them
			return Lease{}, Denial{Code: openai.CodeConcurrency, Retry: time.Second}, false
		}
		lease.Throttled = true
	}
	if d, ok := a.take(here, &lease, now); !ok {
		return Lease{}, d, false
	}
	a.reserved[0] += int64(ask.Tokens)
	a.reserved[1] += ask.Micros
	return lease, Denial{}, true
}

// take takes from the buckets of requests and tokens.
func (a *account) take(here spec.Allowance, lease *Lease, now time.Time) (Denial, bool) {
	rpm, tpm := perMin(here[spec.Requests]), perMin(here[spec.Tokens])
	reserve := float64(lease.ask.Tokens)
	if a.terms.Whole[spec.Requests] > 0 {
		a.requests.fill(rpm, now)
		if d := a.requests.until(1, rpm); d > 0 {
			return Denial{Code: openai.CodeRequests, Retry: a.retry(d, spec.Requests, here)}, false
		}
	}
	if a.terms.Whole[spec.Tokens] > 0 {
		reserve = min(reserve, tpm.size())
		a.tokens.fill(tpm, now)
		if d := a.tokens.until(reserve, tpm); d > 0 {
			return Denial{Code: openai.CodeTokens, Retry: a.retry(d, spec.Tokens, here)}, false
		}
		a.tokens.level -= reserve
		lease.metered = true
	}
	if a.terms.Whole[spec.Requests] > 0 {
		a.requests.level--
	}
	lease.reserved = int(reserve)
	return Denial{}, true
}

// retry is when to try again: not when a small lease will do, but when a larger one has come, or the whole limit would do.
func (a *account) retry(d time.Duration, r spec.Resource, here spec.Allowance) time.Duration {
	switch {
	case !a.terms.Shared:
		return d
	case here[r] <= 0:
		return leaseSoon
	}
	return min(d, max(leaseSoon, time.Duration(float64(d)*float64(here[r])/float64(a.terms.Whole[r]))))
}

// overBudget says that the request does not fit into what is left of the day's budget, with what is under way.
func (a *account) overBudget(here spec.Allowance, ask Ask) bool {
	return a.terms.Whole[spec.DayTokens] > 0 && a.spent[0]+a.reserved[0]+int64(ask.Tokens) > here[spec.DayTokens] ||
		a.terms.Whole[spec.DayMicros] > 0 && a.spent[1]+a.reserved[1]+ask.Micros > here[spec.DayMicros]
}

// nextDay is when there is a new budget. Of a shared one another gateway's part may come before.
func (a *account) nextDay(now time.Time) time.Duration {
	d := a.terms.Budget.DayEnds(now)
	if a.terms.Shared {
		d = min(d, time.Minute)
	}
	return d
}

// here is what the tenant may spend at this gateway now, in the day that begins with it if it is a new one.
func (l *Limiter) here(name string, a *account, now time.Time) spec.Allowance {
	a.turn(a.terms.Budget.Day(now))
	if !a.terms.Shared {
		return a.terms.Static
	}
	return l.leases.Allow(name, a.terms.Static, a.spentAs(), a.day, now)
}

// Settle ends a request: what was reserved too much returns, what was used beyond it is owed.
func (l *Limiter) Settle(lease Lease, used Ask, now time.Time) {
	a := l.accounts[lease.tenant]
	if a == nil {
		return
	}
	a.running = max(a.running-1, 0)
	if lease.metered {
		a.tokens.level += float64(lease.reserved - used.Tokens)
	}
	if a.terms.Budget != nil {
		a.turn(a.terms.Budget.Day(now))
	}
	a.reserved[0], a.reserved[1] = max(a.reserved[0]-int64(lease.ask.Tokens), 0), max(a.reserved[1]-lease.ask.Micros, 0)
	a.spent[0], a.spent[1] = a.spent[0]+int64(used.Tokens), a.spent[1]+used.Micros
}

// Left is what the tenant may still use here.
func (l *Limiter) Left(name string, terms Terms, now time.Time) Left {
	a := l.account(name)
	a.terms = terms
	here := l.here(name, a, now)
	var left Left
	if terms.Whole[spec.Requests] > 0 {
		rpm := perMin(here[spec.Requests])
		a.requests.fill(rpm, now)
		left.Requests = int(max(a.requests.level, 0))
		left.ResetRequests = a.requests.until(rpm.size(), rpm)
	}
	if terms.Whole[spec.Tokens] > 0 {
		tpm := perMin(here[spec.Tokens])
		a.tokens.fill(tpm, now)
		left.Tokens = int(max(a.tokens.level, 0))
		left.ResetTokens = a.tokens.until(tpm.size(), tpm)
	}
	return left
}

// Retain forgets idle tenants that keep does not name, after a new spec.
func (l *Limiter) Retain(keep func(name string) bool) {
	for name, a := range l.accounts {
		if a.running == 0 && !keep(name) {
			delete(l.accounts, name)
		}
	}
}

// account finds or makes a tenant's account. Past MaxTenants a newcomer gets one that is not kept, so that memory stays bounded.
func (l *Limiter) account(name string) *account {
	a := l.accounts[name]
	if a == nil {
		a = &account{}
		if len(l.accounts) < MaxTenants {
			l.accounts[name] = a
		}
	}
	return a
}
