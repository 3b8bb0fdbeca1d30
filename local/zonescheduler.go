package local

import (
	"context"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/sched"
)

// zoneScheduler runs a scheduler for concurrent callers. It holds the lock and delivers what the scheduler decides about
// others than the caller.
type zoneScheduler struct {
	mu            sync.Mutex
	core          *sched.Scheduler
	prefillTimers sync.Pool     // of *prefillTimer
	pumpWake      chan struct{} // wakes runPump: a request waits
	loaderWake    chan struct{} // wakes runModelLoader: what is loaded must be checked
}

func newZoneScheduler(cfg sched.Config) *zoneScheduler {
	return &zoneScheduler{core: sched.New(cfg), pumpWake: make(chan struct{}, 1), loaderWake: make(chan struct{}, 1)}
}

// update calls do with the scheduler under the lock. A result is assigned to a variable of the caller.
func (z *zoneScheduler) update(do func(s *sched.Scheduler)) {
	z.mu.Lock()
	defer z.mu.Unlock()
	do(z.core)
	z.deliverResults()
}

// deliverResults hands the results of ended waits to their requests and wakes the model loader. The caller holds the lock.
func (z *zoneScheduler) deliverResults() {
	for _, v := range z.core.Admission.TakeSettled() {
		owner := v.Owner.(*zoneRequest)
		owner.waitResults <- v.WaitResult
		owner.loopRef.Wake()
	}
	if z.core.TakePlacementChanged() {
		wakeLoop(z.loaderWake)
	}
}

// wakeLoop sends to a channel with a buffer of one, unless a wakeup is pending there.
func wakeLoop(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wakePump wakes runPump without blocking.
func (z *zoneScheduler) wakePump() { wakeLoop(z.pumpWake) }

// admitRequest assigns a worker to a request, queues it or refuses it.
func (z *zoneScheduler) admitRequest(v *zoneRequest, now time.Time) (at *sched.Attempt, refusal *openai.Error, waits bool) {
	v.Owner = v
	z.mu.Lock()
	defer z.mu.Unlock()
	if at, refusal, waits = z.core.Admission.AdmitRequest(&v.Request, now); waits && v.waitResults == nil {
		v.waitResults = make(chan sched.WaitResult, 1) // one result for each wait
	}
	z.deliverResults()
	return at, refusal, waits
}

// awaitPlacement waits until a queued request is assigned a worker, is refused, or is cancelled by its client.
func (z *zoneScheduler) awaitPlacement(ctx context.Context, v *zoneRequest) (*sched.Attempt, *openai.Error) {
	var late <-chan time.Time
	if !v.QueueItem.Deadline.IsZero() {
		t := time.NewTimer(time.Until(v.QueueItem.Deadline))
		defer t.Stop()
		late = t.C
	}
	select {
	case r := <-v.waitResults:
		return r.Attempt, r.Refusal
	case <-ctx.Done():
		return z.leaveQueue(v, func(*sched.Scheduler, time.Time) *openai.Error {
			return openai.UpstreamFailed("the client left while it waited")
		})
	case <-late:
		return z.leaveQueue(v, func(s *sched.Scheduler, now time.Time) *openai.Error {
			return s.Admission.RefuseTooLate(&v.Request, now)
		})
	}
}

// leaveQueue removes a request from the queue and refuses it. When its wait has ended at the same moment, that result is
// used after all.
func (z *zoneScheduler) leaveQueue(v *zoneRequest, refuse func(*sched.Scheduler, time.Time) *openai.Error) (at *sched.Attempt, refusal *openai.Error) {
	z.update(func(s *sched.Scheduler) {
		now := time.Now()
		refusal = refuse(s, now)
		if s.Admission.LeaveQueue(&v.Request, now) {
			return
		}
		r := <-v.waitResults // filled under the lock when the wait ended
		at, refusal = r.Attempt, r.Refusal
	})
	return at, refusal
}

// takeRetry takes one retry for a request out of the budget; false when it may not be retried on another worker.
func (z *zoneScheduler) takeRetry(v *zoneRequest, now time.Time) (ok bool) {
	z.update(func(s *sched.Scheduler) { ok = s.Retries.TakeRetry(&v.Request, now) })
	return ok
}

// mustServeAlone reports whether a request must not share a call with others, because a worker has died under it.
func (z *zoneScheduler) mustServeAlone(v *zoneRequest) (alone bool) {
	z.update(func(s *sched.Scheduler) { alone = s.Deaths.MustServeAlone(&v.Request, time.Now()) })
	return alone
}

// countReadyWorkers counts the workers that may be chosen for a model.
func (z *zoneScheduler) countReadyWorkers(model string) (n int) {
	z.update(func(s *sched.Scheduler) { n = s.CountReadyWorkers(model) })
	return n
}

// listWorkerNames lists the workers of the zone, sorted.
func (z *zoneScheduler) listWorkerNames() (names []string) {
	z.update(func(s *sched.Scheduler) { names = s.ListWorkerNames() })
	return names
}

// reachedWorkers lists the workers that have answered a probe, sorted.
func (z *zoneScheduler) reachedWorkers() (names []string) {
	z.update(func(s *sched.Scheduler) { names = s.ReachedWorkers() })
	return names
}

// applyPolicy puts a new policy in force.
func (z *zoneScheduler) applyPolicy(o *zonePolicy, now time.Time) {
	z.update(func(s *sched.Scheduler) { s.ApplyPolicy(o.SchedulingPolicy, now) })
}

// predictTTFT predicts a request's time to first token from a model, in seconds; infinity when it cannot be predicted.
func (z *zoneScheduler) predictTTFT(v *zoneRequest, model string, now time.Time) (seconds float64) {
	z.update(func(s *sched.Scheduler) { seconds = s.Admission.PredictTTFT(&v.Request, model, now) })
	return seconds
}

// zoneWorkers returns the declared workers by name.
func (z *zoneScheduler) zoneWorkers() map[string]*zoneWorker {
	out := map[string]*zoneWorker{}
	z.update(func(s *sched.Scheduler) {
		for _, w := range s.WorkersByName() {
			out[w.Spec.Name] = w.Backend.(*zoneWorker)
		}
	})
	return out
}

// prefillTimer marks the prefill of an answer that is not a stream as done at its predicted time. Timers are pooled.
type prefillTimer struct {
	scheduler *zoneScheduler
	attempt   *sched.Attempt
	timer     *time.Timer
}

// startPrefillTimer starts a timer that marks an attempt's prefill as done unless it is stopped before.
func (z *zoneScheduler) startPrefillTimer(at *sched.Attempt, after time.Duration) *prefillTimer {
	x, ok := z.prefillTimers.Get().(*prefillTimer)
	if ok {
		x.attempt = at
		x.timer.Reset(after)
		return x
	}
	x = &prefillTimer{scheduler: z, attempt: at}
	x.timer = time.AfterFunc(after, x.recordPrefill)
	return x
}

func (x *prefillTimer) recordPrefill() {
	x.scheduler.update(func(s *sched.Scheduler) { s.RecordPrefillDone(x.attempt, time.Now()) })
}

// stop stops the timer and returns it to the pool. A timer that has fired may still be running and is not reused.
func (x *prefillTimer) stop() {
	if x.timer.Stop() {
		x.attempt = nil
		x.scheduler.prefillTimers.Put(x)
	}
}
