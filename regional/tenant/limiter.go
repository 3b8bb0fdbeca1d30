package tenant

import (
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
)

// MaxTenants bounds a Limiter. Only tenants of the spec are ever admitted, so that it is never reached by outsiders.
const MaxTenants = 100_000

// Limiter holds the use of every tenant. It has one writer at a time: callers that share it lock it.
type Limiter struct {
	accounts map[string]*account
}

type account struct {
	requests, tokens bucket
	running          int
}

// Lease is one admitted request. It must be settled once.
type Lease struct {
	tenant   string
	reserved int
	metered  bool // tokens were limited when it was admitted
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

// NewLimiter makes a Limiter in which nobody has used anything.
func NewLimiter() *Limiter { return &Limiter{accounts: map[string]*account{}} }

// Admit takes one request of about tokens tokens out of the tenant's limits, all or nothing. Reserving more than a whole
// minute's tokens takes them all: a long request waits for a full bucket, not for ever.
func (l *Limiter) Admit(name string, lim spec.Limits, tokens int, now time.Time) (Lease, Denial, bool) {
	a := l.account(name)
	rpm, tpm := float64(lim.RequestsPerMinute), float64(lim.TokensPerMinute)
	reserve := float64(tokens)
	if lim.Concurrency > 0 && a.running >= lim.Concurrency {
		return Lease{}, Denial{Code: openai.CodeConcurrency, Retry: time.Second}, false
	}
	if rpm > 0 {
		a.requests.fill(rpm, now)
		if d := a.requests.until(1, rpm); d > 0 {
			return Lease{}, Denial{Code: openai.CodeRequests, Retry: d}, false
		}
	}
	if tpm > 0 {
		reserve = min(reserve, tpm)
		a.tokens.fill(tpm, now)
		if d := a.tokens.until(reserve, tpm); d > 0 {
			return Lease{}, Denial{Code: openai.CodeTokens, Retry: d}, false
		}
	}
	if rpm > 0 {
		a.requests.level--
	}
	if tpm > 0 {
		a.tokens.level -= reserve
	}
	a.running++
	return Lease{tenant: name, reserved: int(reserve), metered: tpm > 0}, Denial{}, true
}

// Settle ends a request that used used tokens: what was reserved too much returns, what was used beyond it is owed.
func (l *Limiter) Settle(lease Lease, used int) {
	a := l.accounts[lease.tenant]
	if a == nil {
		return
	}
	a.running = max(a.running-1, 0)
	if lease.metered {
		a.tokens.level += float64(lease.reserved - used)
	}
}

// Left is what the tenant may still use.
func (l *Limiter) Left(name string, lim spec.Limits, now time.Time) Left {
	a := l.account(name)
	var left Left
	if rpm := float64(lim.RequestsPerMinute); rpm > 0 {
		a.requests.fill(rpm, now)
		left.Requests = int(max(a.requests.level, 0))
		left.ResetRequests = a.requests.until(rpm, rpm)
	}
	if tpm := float64(lim.TokensPerMinute); tpm > 0 {
		a.tokens.fill(tpm, now)
		left.Tokens = int(max(a.tokens.level, 0))
		left.ResetTokens = a.tokens.until(tpm, tpm)
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
