package local

import (
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/sched"
)

// admission is the scheduler's decision about a request that arrives.
type admission struct {
	attempt *sched.Attempt
	refusal *openai.Error
	waits   bool
}

// takeDecision returns the decision and empties it.
func (d *admission) takeDecision() (*sched.Attempt, *openai.Error, bool) {
	was := *d
	*d = admission{}
	return was.attempt, was.refusal, was.waits
}

// startLoopRequest admits a request of the loop and starts its attempt, if it is placed at once and is not hedged.
func (z *zoneScheduler) startLoopRequest(x *loopExchange, now time.Time) {
	v := &x.request
	v.Owner = v
	z.mu.Lock()
	defer z.mu.Unlock()
	defer z.deliverResults()
	if x.suspected = z.core.Deaths.RefuseSuspect(&v.Request, now); x.suspected != nil {
		return
	}
	z.core.Retries.AddRetryCredit()
	d := &v.admission
	d.attempt, d.refusal, d.waits = z.core.Admission.AdmitRequest(&v.Request, now)
	if d.waits {
		v.waitResults = make(chan sched.WaitResult, 1) // one result for each wait
	}
	z.startLoopAttempt(x)
}

// startPlacedRequest starts the attempt of a request of the loop whose wait has ended, as startLoopRequest does.
func (z *zoneScheduler) startPlacedRequest(x *loopExchange, r sched.WaitResult) {
	v := &x.request
	z.mu.Lock()
	defer z.mu.Unlock()
	v.admission = admission{attempt: r.Attempt, refusal: r.Refusal}
	z.startLoopAttempt(x)
	z.deliverResults()
}

// startLoopAttempt starts the attempt of an admitted request, unless a goroutine must make it. The caller holds the lock.
func (z *zoneScheduler) startLoopAttempt(x *loopExchange) {
	v := &x.request
	d := &v.admission
	if d.attempt == nil || v.SuspectAttempt {
		return
	}
	if _, hedged := z.core.Admission.HedgeDelay(&v.Request, d.attempt); hedged {
		return
	}
	x.observer.attempt, _, _ = d.takeDecision()
	x.started = true
	z.core.StartAttempt(x.observer.attempt, &x.observer)
}
