package sched

import (
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/resume"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/pick"
)

// RetryLimiter decides whether a failed request may go to another worker, and to which.
type RetryLimiter struct {
	*zoneState
	Budget         float64 // retries available now
	massLossBudget resume.MassLossBudget
}

// AddRetryCredit adds the request's share of a retry to the retry budget.
func (r *RetryLimiter) AddRetryCredit() {
	r.Budget = min(r.Budget+r.policy.retryBudget(), RetryBurst)
}

// TakeRetry takes one retry from the budget for a request. It returns false when the budget is empty or no worker is
// left that has not failed this request.
func (r *RetryLimiter) TakeRetry(v *Request, now time.Time) bool {
	if r.Budget < 1 || r.IsClosed(now) || !r.hasOtherWorker(v) {
		return false
	}
	r.Budget--
	return true
}

func (r *RetryLimiter) hasOtherWorker(v *Request) bool {
	p := r.groups[v.Model]
	if p == nil {
		return false
	}
	ws := p.view.Workers
	return slices.ContainsFunc(ws, func(w pick.WorkerSnapshot) bool {
		return w.DownReason == "" && v.Query.AllowsWorker(&w) && !slices.Contains(v.Query.Exclude, w.ID)
	})
}

// RetryBurst bounds the retry budget: a worker that dies takes all its unanswered requests with it at once.
const RetryBurst = 64

// TakeResume returns why the stream of a request may not continue on another worker. It returns Resumable when it may, and
// then takes a retry out of the budget, or one of those that a mass loss of workers allows.
func (r *RetryLimiter) TakeResume(v *Request, chat bool, now time.Time) resume.NotResumableReason {
	switch {
	case v.Continuing:
		return resume.AlreadyResumed
	case r.IsClosed(now):
		return resume.NoEndpoint
	}
	if why := r.ExcludeUnfitWorkers(v, chat); why != resume.Resumable {
		return why
	}
	switch {
	case r.Budget >= 1:
		r.Budget--
	case !r.massLossBudget.TakeResume(now, r.countOpenAttempts()):
		return resume.NoRetryBudget
	}
	return resume.Resumable
}

// ExcludeUnfitWorkers excludes the workers whose engines cannot continue an answer, and returns why none of the others can:
// Resumable when one can, NoEndpoint when those that could are down, NoOtherEngine when there are none.
func (r *RetryLimiter) ExcludeUnfitWorkers(v *Request, chat bool) resume.NotResumableReason {
	p := r.groups[v.Model]
	if p == nil {
		return resume.NoOtherEngine
	}
	v.unfitWorkers = v.unfitWorkers[:0]
	for i, w := range p.workers {
		if !report.CanContinue(w.engineName(), chat) {
			v.unfitWorkers = append(v.unfitWorkers, p.view.Workers[i].ID)
		}
	}
	v.UpdateExclusions()
	why := resume.NoOtherEngine
	for i := range p.view.Workers {
		x, w := &p.view.Workers[i], p.workers[i]
		switch {
		case !v.Query.AllowsWorker(x) || slices.Contains(v.Query.Exclude, x.ID):
		case x.DownReason == "":
			return resume.Resumable
		case !w.drained && !w.removed && w.otherOwner == "":
			why = resume.NoEndpoint
		}
	}
	return why
}

// ExcludeNonGRPCWorkers makes workers without gRPC ineligible for a call, and reports whether any other is left.
func (r *RetryLimiter) ExcludeNonGRPCWorkers(v *Request) bool {
	p := r.groups[v.Model]
	if p == nil || len(p.workers) == 0 {
		return true // another refusal applies
	}
	v.unfitWorkers = v.unfitWorkers[:0]
	for i, w := range p.workers {
		if w.grpcSupport == grpcUnsupported {
			v.unfitWorkers = append(v.unfitWorkers, p.view.Workers[i].ID)
		}
	}
	v.UpdateExclusions()
	return len(v.unfitWorkers) < len(p.workers)
}

// AwaitFit is ExcludeUnfitWorkers for a request that waits for a worker that is down at present.
func (r *RetryLimiter) AwaitFit(v *Request, chat bool, now time.Time) resume.NotResumableReason {
	why := r.ExcludeUnfitWorkers(v, chat)
	if r.IsClosed(now) {
		return resume.NoOtherEngine
	}
	return why
}

// TakesUpgrades makes workers ineligible for a WebSocket when they list a model that the tenant may not use. It reports whether
// any other is left. The messages of a WebSocket are not read, and one of /v1/realtime (session.update) may name any model of its
// worker. A key that is limited to models therefore gets only workers that serve no others. A worker with declared models counts
// as serving those; a model that it loads later goes unnoticed.
func (r *RetryLimiter) TakesUpgrades(v *Request, t *spec.Tenant) bool {
	if t == nil || len(t.Models) == 0 {
		return true
	}
	p := r.groups[v.Model]
	if p == nil || len(p.workers) == 0 {
		return true // another refusal applies
	}
	v.unfitWorkers = v.unfitWorkers[:0]
	for i, w := range p.workers {
		if slices.ContainsFunc(w.models, func(m report.WorkerModel) bool { return m.ID != v.Model && !t.MayUseModel(m.ID, m.ID) }) {
			v.unfitWorkers = append(v.unfitWorkers, p.view.Workers[i].ID)
		}
	}
	v.UpdateExclusions()
	return len(v.unfitWorkers) < len(p.workers)
}
