// Package tenant enforces the limits of tenants at one gateway: requests and tokens per minute, concurrent requests,
// tokens and money per day, and the retries of all tenants together.
//
// Tokens and money are reserved when a request enters and settled when it ends, because its cost is known only then.
// Running requests count, so that concurrent requests cannot together exceed a limit that one alone would. Usage
// beyond the estimate overdraws the bucket and is refilled before the next request is admitted.
//
// Limits that are shared with other gateways are spent from Leases: the leader's grants, or this gateway's static
// share without them. Package global/quota, the granting side, documents the guarantees.
//
// The package does no authentication and does not read requests.
package tenant

import (
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
)

// MaxTenants bounds a Limiter. Only tenants of the spec are admitted, so unauthenticated clients cannot reach it.
const MaxTenants = 100_000

// leaseRetryDelay is the time in which a lease follows demand: a request that is refused for lack of a lease need not
// wait longer, unless the whole limit is used up.
const leaseRetryDelay = 2 * time.Second

// Limiter holds the usage of all tenants. It has one writer at a time: callers that share it lock it.
type Limiter struct {
	tenants              map[string]*tenantState
	leases               *Leases
	restoredWithoutTerms map[string]bool // tenants whose terms are not known yet
}

// Terms are the limits of a tenant by the spec.
type Terms struct {
	Whole  spec.Quota // 0: unlimited
	Static spec.Quota // this gateway's share
	Shared bool       // with other gateways
	Budget *spec.Budget
}

// TermsOf returns the terms of a tenant at a gateway.
func TermsOf(s *spec.Spec, t *spec.Tenant, h spec.LeaseHolder) Terms {
	x := Terms{Whole: t.TotalQuota(), Budget: &t.Budget}
	c := s.SharedQuotaOf(t, h.Region)
	x.Static, x.Shared = c.StaticShare(x.Whole, h), c.HolderCount() > 1
	return x
}

// RequestCost is the estimated cost of a request: prompt and output tokens, and millionths of a dollar.
type RequestCost struct {
	Tokens int
	Micros int64
}

// Reservation is one admitted request. It must be settled once.
type Reservation struct {
	tenant        string
	reserved      int
	estimate      RequestCost
	tokensLimited bool // tokens were limited when it was admitted
	Throttled     bool // the day's budget is used up, and the tenant continues at reduced rate
}

// Denial is the limit that refused a request, and the time until it admits it.
type Denial struct {
	Code  string // one of the codes of package openai
	Retry time.Duration
}

// Remaining is what is left of a tenant's limits, for the x-ratelimit headers.
type Remaining struct {
	Requests, Tokens           int           // whole requests and tokens that are available now
	ResetRequests, ResetTokens time.Duration // until the buckets are full again
}

// NewLimiter makes an empty Limiter. Shared limits are spent from leases.
func NewLimiter(leases *Leases) *Limiter {
	return &Limiter{tenants: map[string]*tenantState{}, leases: leases, restoredWithoutTerms: map[string]bool{}}
}

// EnterRequest counts a request as running before its cost is known; false when the tenant is at its concurrency
// limit. A request that entered must be admitted or leave.
func (l *Limiter) EnterRequest(name string, terms Terms, now time.Time) (Denial, bool) {
	a := l.stateOf(name)
	a.terms = terms
	here := l.limitsHere(name, a, now)
	if terms.Whole[spec.ResourceConcurrency] > 0 && int64(a.running) >= here[spec.ResourceConcurrency] {
		a.demand.decayTo(now)
		a.demand.requests++
		a.demand.refused++
		return Denial{Code: openai.CodeConcurrency, Retry: time.Second}, false
	}
	a.running++
	return Denial{}, true
}

// LeaveRequest ends a request that entered and was not admitted.
func (l *Limiter) LeaveRequest(name string) {
	if a := l.tenants[name]; a != nil {
		a.running = max(a.running-1, 0)
	}
}

// AdmitRequest takes one request from all limits of the tenant, or from none. A reservation above a minute's tokens
// takes all of them: a long request waits for a full bucket, not forever.
func (l *Limiter) AdmitRequest(name string, terms Terms, ask RequestCost, now time.Time) (Reservation, Denial, bool) {
	if d, ok := l.EnterRequest(name, terms, now); !ok {
		l.stateOf(name).demand.tokens += float64(ask.Tokens)
		return Reservation{}, d, false
	}
	lease, d, ok := l.AdmitEntered(name, terms, ask, now)
	if !ok {
		l.LeaveRequest(name)
	}
	return lease, d, ok
}

// AdmitEntered is AdmitRequest for a request that has entered. If it is denied it must still leave.
func (l *Limiter) AdmitEntered(name string, terms Terms, ask RequestCost, now time.Time) (Reservation, Denial, bool) {
	a := l.stateOf(name)
	a.terms = terms
	here := l.limitsHere(name, a, now)
	a.demand.decayTo(now)
	a.demand.requests++
	a.demand.tokens += float64(ask.Tokens)
	lease := Reservation{tenant: name, estimate: ask}
	if a.exceedsDayBudget(here, ask) {
		if terms.Budget.WhenSpent != spec.SpentThrottle {
			return Reservation{}, Denial{Code: openai.CodeQuota, Retry: a.untilNextDay(now)}, false
		}
		if a.running > 1 { // the request itself is counted
			return Reservation{}, Denial{Code: openai.CodeConcurrency, Retry: time.Second}, false
		}
		lease.Throttled = true
	}
	if d, ok := a.takeTokens(here, &lease, now); !ok {
		return Reservation{}, d, false
	}
	a.reserved[0] += int64(ask.Tokens)
	a.reserved[1] += ask.Micros
	return lease, Denial{}, true
}

// takeTokens takes from the buckets of requests and tokens.
func (a *tenantState) takeTokens(here spec.Quota, lease *Reservation, now time.Time) (Denial, bool) {
	rpm, tpm := refillFromMilli(here[spec.ResourceRequests]), refillFromMilli(here[spec.ResourceTokens])
	reserve := float64(lease.estimate.Tokens)
	if a.terms.Whole[spec.ResourceRequests] > 0 {
		a.requests.refillTo(rpm, now)
		if d := a.requests.waitFor(1, rpm); d > 0 {
			return Denial{Code: openai.CodeRequests, Retry: a.retryAfter(d, spec.ResourceRequests, here)}, false
		}
	}
	if a.terms.Whole[spec.ResourceTokens] > 0 {
		reserve = min(reserve, tpm.bucketSize())
		a.tokens.refillTo(tpm, now)
		if d := a.tokens.waitFor(reserve, tpm); d > 0 {
			return Denial{Code: openai.CodeTokens, Retry: a.retryAfter(d, spec.ResourceTokens, here)}, false
		}
		a.tokens.level -= reserve
		lease.tokensLimited = true
	}
	if a.terms.Whole[spec.ResourceRequests] > 0 {
		a.requests.level--
	}
	lease.reserved = int(reserve)
	return Denial{}, true
}

// retryAfter is the time to retry: not that of a small lease, but until a larger lease has arrived or the whole limit
// would admit the request.
func (a *tenantState) retryAfter(d time.Duration, r spec.Resource, here spec.Quota) time.Duration {
	switch {
	case !a.terms.Shared:
		return d
	case here[r] <= 0:
		return leaseRetryDelay
	}
	return min(d, max(leaseRetryDelay, time.Duration(float64(d)*float64(here[r])/float64(a.terms.Whole[r]))))
}

// exceedsDayBudget reports whether the request exceeds the rest of the day's budget, with running requests counted.
func (a *tenantState) exceedsDayBudget(here spec.Quota, ask RequestCost) bool {
	return a.terms.Whole[spec.ResourceDayTokens] > 0 && a.spent[0]+a.reserved[0]+int64(ask.Tokens) > here[spec.ResourceDayTokens] ||
		a.terms.Whole[spec.ResourceDayMicros] > 0 && a.spent[1]+a.reserved[1]+ask.Micros > here[spec.ResourceDayMicros]
}

// untilNextDay is the time until the budget is renewed. For a shared one, another gateway's part may come earlier.
func (a *tenantState) untilNextDay(now time.Time) time.Duration {
	d := a.terms.Budget.TimeToDayEnd(now)
	if a.terms.Shared {
		d = min(d, time.Minute)
	}
	return d
}

// limitsHere is what the tenant may spend at this gateway now. It starts a new day if needed.
func (l *Limiter) limitsHere(name string, a *tenantState, now time.Time) spec.Quota {
	a.startDay(a.terms.Budget.DayNumber(now))
	if !a.terms.Shared {
		return a.terms.Static
	}
	return l.leases.LimitsFor(name, a.terms.Static, a.spentAllowance(), a.day, now)
}

// SettleRequest ends a request: the unused reservation is returned, usage beyond it overdraws the bucket.
func (l *Limiter) SettleRequest(lease Reservation, used RequestCost, now time.Time) {
	a := l.tenants[lease.tenant]
	if a == nil {
		return
	}
	a.running = max(a.running-1, 0)
	if lease.tokensLimited {
		a.tokens.level += float64(lease.reserved - used.Tokens)
	}
	if a.terms.Budget != nil {
		a.startDay(a.terms.Budget.DayNumber(now))
	}
	a.reserved[0], a.reserved[1] = max(a.reserved[0]-int64(lease.estimate.Tokens), 0), max(a.reserved[1]-lease.estimate.Micros, 0)
	a.spent[0], a.spent[1] = a.spent[0]+int64(used.Tokens), a.spent[1]+used.Micros
}

// RemainingFor is what the tenant may still use here.
func (l *Limiter) RemainingFor(name string, terms Terms, now time.Time) Remaining {
	a := l.stateOf(name)
	a.terms = terms
	here := l.limitsHere(name, a, now)
	var left Remaining
	if terms.Whole[spec.ResourceRequests] > 0 {
		rpm := refillFromMilli(here[spec.ResourceRequests])
		a.requests.refillTo(rpm, now)
		left.Requests = int(max(a.requests.level, 0))
		left.ResetRequests = a.requests.waitFor(rpm.bucketSize(), rpm)
	}
	if terms.Whole[spec.ResourceTokens] > 0 {
		tpm := refillFromMilli(here[spec.ResourceTokens])
		a.tokens.refillTo(tpm, now)
		left.Tokens = int(max(a.tokens.level, 0))
		left.ResetTokens = a.tokens.waitFor(tpm.bucketSize(), tpm)
	}
	return left
}

// RetainTenants drops idle tenants for which keep is false, after a new spec.
func (l *Limiter) RetainTenants(keep func(name string) bool) {
	for name, a := range l.tenants {
		if a.running == 0 && !keep(name) {
			delete(l.tenants, name)
		}
	}
}

// stateOf returns a tenant's state, creating it if needed. Beyond MaxTenants a new state is not stored, so that
// memory stays bounded.
func (l *Limiter) stateOf(name string) *tenantState {
	a := l.tenants[name]
	if a == nil {
		a = &tenantState{}
		if len(l.tenants) < MaxTenants {
			l.tenants[name] = a
		}
	}
	return a
}
