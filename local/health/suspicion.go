package health

import (
	"strings"
	"time"
)

// tenants holds the two tenants that got an error answer last: enough to distinguish errors of one tenant from those
// of several.
type tenants struct {
	names [2]string // the latest first
	at    [2]time.Time
}

// addTenant records an error answer to a tenant. An empty name is unknown and corroborates nothing.
func (s *tenants) addTenant(name string, now time.Time) {
	if name == "" {
		return
	}
	if s.names[0] != name {
		s.names[1], s.at[1] = s.names[0], s.at[0]
		s.names[0] = strings.Clone(name) // a name read from a header would keep the whole head in memory
	}
	s.at[0] = now
}

// hasSeveral reports whether two tenants got an error answer within the window.
func (s *tenants) hasSeveral(now time.Time) bool {
	return s.names[1] != "" && now.Sub(s.at[1]) <= tenantWindow
}

// suspicion is the state of a worker whose plain error answers went to one tenant only: that tenant's requests may be
// the cause.
type suspicion struct {
	kind     FailureKind // SoftError or ErrorRateOutlier: the kind it would be ejected for
	on       bool
	asked    time.Time // start of the current verification; zero: none
	verified time.Time // end of the last one; zero: none since the worker was last out
}

// Verification is the outcome of a generated request to a suspected worker.
type Verification uint8

// Outcomes of a verification.
const (
	Passed       Verification = iota // answered: the tenant's requests cause the errors
	Failed                           // failed as well: the worker is broken
	Inconclusive                     // shows nothing: repeat it
)

// FailAnswer records a plain error answer to a tenant's request: one without a sign of a dead engine. Config.Failures
// of them in a row, or a single one on trial, open the breaker if they went to two tenants. If they went to one
// tenant, or to an unknown one (empty), the worker becomes suspected.
func (b *Breaker) FailAnswer(tenant string, now time.Time) {
	b.adjustClock(now)
	b.answers.recordRefusal(tenant, now)
	b.softFailures++
	b.softOf.addTenant(tenant, now)
	switch {
	case b.softFailures < b.cfg.Failures && b.state != HalfOpen:
	case b.softOf.hasSeveral(now):
		b.openBreaker(SoftError, now)
	default:
		b.suspectWorker(SoftError)
	}
}

// RecordOverload records an answer by which the worker refuses a tenant for load. It opens nothing by itself and
// counts as a plain error answer when the workers of a pool are compared.
func (b *Breaker) RecordOverload(tenant string, now time.Time) {
	b.adjustClock(now)
	b.answers.recordRefusal(tenant, now)
}

func (b *Breaker) suspectWorker(k FailureKind) {
	if b.state.AcceptsRequests() && !b.suspicion.on {
		b.suspicion.on, b.suspicion.kind = true, k
	}
}

// isCorroborated reports whether an error rate above the limit counts: the plain errors went to several tenants, or the
// rate exceeds the limit without them. If it does not count, the worker becomes suspected.
func (b *Breaker) isCorroborated(limit float64, now time.Time) bool {
	if r := &b.answers; r.plainOf.hasSeveral(now) || (r.failed-r.plain)/r.answers > limit {
		return true
	}
	b.suspectWorker(ErrorRateOutlier)
	return false
}

// Suspected reports whether the worker waits for a verification, or one is in progress.
func (b *Breaker) Suspected() bool { return b.suspicion.on }

// Verify reports whether the worker should now be verified by a generated request, and for which kind. It records the
// start: no further one is due until Verified is called with the same time, or the worker was out.
func (b *Breaker) Verify(now time.Time) (k FailureKind, due bool) {
	b.adjustClock(now)
	s := &b.suspicion
	if !s.on || !s.asked.IsZero() || !b.state.AcceptsRequests() || !s.verified.IsZero() && now.Sub(s.verified) < verifyEvery {
		return 0, false
	}
	s.asked = now
	return s.kind, true
}

// Verified ends the verification that started at began. A passed one clears errors that only one tenant got. It
// reports whether the caller should eject the worker, unless the pool forbids it; false if the worker was out in
// between.
func (b *Breaker) Verified(began time.Time, v Verification, now time.Time) (eject bool) {
	b.adjustClock(now)
	s := &b.suspicion
	if s.asked.IsZero() || !s.asked.Equal(began) {
		return false
	}
	s.asked, s.verified = time.Time{}, now
	if v == Inconclusive {
		return false
	}
	s.on = false
	if v == Failed {
		return true
	}
	if !b.answers.plainOf.hasSeveral(now) {
		b.answers.clearPlainErrors()
	}
	b.RecordSuccess(now)
	return false
}
