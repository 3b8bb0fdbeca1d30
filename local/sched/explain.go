package sched

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/modelload"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/queue"
)

// maxNamedModels bounds how many of a worker's models an explanation lists.
const maxNamedModels = 4

// ExplainChoice replays a choice without making it. The explanation lists every worker of the zone: those of the
// model with their costs or the reason why they are ineligible, the others with what they serve instead.
func (r *Reporter) ExplainChoice(v *Request, rec *explain.Explanation, now time.Time) {
	p := r.groups[v.Model]
	if p == nil || len(p.workers) == 0 {
		rec.SetChosen("", pick.ReasonNoWorker)
	} else {
		r.admission.prepareQuery(v, p)
		r.admission.setShareLimits(v, p, false, now)
		if rec.IsRecording() && v.Query.Share.Contended && v.Tenant != "" {
			rec.AddNote(describeOverFairShare(v))
		}
		d, room := pick.PeekWorker(&v.Query, p.view, now, r.rng, rec)
		loads := r.hasNoReadyWorker(p) && r.loader.coldAvailability(p.model, now).Availability > modelload.AvailabilityFailed // then the request waits for the load, as noted below
		if rec.IsRecording() && !(loads && d.Reason == pick.ReasonNoWorker) {
			rec.AddNote("queue: " + r.explainQueue(v, p, d.Reason, room, now))
		}
		if r.hasNoReadyWorker(p) {
			rec.AddNote(r.loader.describeColdModel(v.Model, now))
		}
		for c := range spec.Class(spec.NumClasses) {
			if n := p.queue.WorkAhead(c); n > 0 {
				rec.AddNote(c.String() + ": tokens waiting before a new request: " + formatInt(n))
			}
		}
	}
	r.explainOtherWorkers(v.Model, rec)
}

// describeOverFairShare describes how requests of a tenant above its fair share are placed.
func describeOverFairShare(v *Request) string {
	note := "tenant " + v.Tenant + " is above its fair share while other tenants have requests: "
	if v.Query.Share.OverShare {
		return note + "the request is placed only where it does not slow down others"
	}
	return note + "workers count as full earlier for it, and it is queued after others"
}

// explainOtherWorkers lists the workers that do not serve the model, by name.
func (r *Reporter) explainOtherWorkers(model string, rec *explain.Explanation) {
	why := map[string]string{}
	for name, w := range r.workers {
		if w.findModel(model) == nil && w.modelSlots[model] == nil {
			why[name] = w.describeServedModels()
		}
	}
	for w := range r.leavingWorkers {
		if _, again := r.workers[w.Spec.Name]; !again {
			why[w.Spec.Name] = "no longer declared: finishing its last answers"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(why)) {
		rec.AddCandidate(name).MarkIneligible(why[name])
	}
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }

// explainQueue describes what a request would meet at a model's queue now. room and reason are the outcome of the choice of a
// worker.
func (r *Reporter) explainQueue(v *Request, p *modelGroup, reason string, room bool, now time.Time) string {
	switch {
	case r.IsClosed(now):
		return "refused: the drain of the zone has reached its deadline"
	case room && p.queue.Len() == 0:
		return "sent at once: no request waits and a worker has room"
	case !room && reason == pick.ReasonTooLong:
		return fmt.Sprintf("refused: longer than the %d tokens that any worker takes", r.admission.longestContext(v, p))
	case !room && reason == pick.ReasonNoWorker:
		return "refused: no worker takes requests, unless one is woken or loads the model"
	}
	r.admission.fillQueueItem(v, p, now)
	v.QueueItem.Bytes = int64(float64(v.Query.PromptTokens) * r.policy.BytesPerToken(v.Model)) // an explained request has no body
	c := p.queue.ForecastPush(&v.QueueItem, now)
	if c.Refusal != queue.Accepted {
		again := p.queue.RetryAfter(v.fairnessKey(), v.Class, now)
		return fmt.Sprintf("refused: %s: try again in %s", c.Refusal, spec.Duration(again))
	}
	waits := "waits; the wait is unknown until a request has left the queue"
	if c.WaitKnown {
		waits = fmt.Sprintf("waits about %.1f s", c.Wait.Seconds())
	}
	if c.ShedProbability > 0 {
		return fmt.Sprintf("shed with probability %.2f, otherwise %s", c.ShedProbability, waits)
	}
	return waits
}
