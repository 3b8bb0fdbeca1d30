package sched

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/decision"
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/autoscale"
	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/inflight"
	"github.com/spillway-lb/spillway/local/modelload"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/prefix/kvmirror"
	"github.com/spillway-lb/spillway/local/queue"
)

// QueueReport is the state of one model's queue.
type QueueReport struct {
	Model string
	Panic bool // so few workers take requests that suspected ones are used too
	queue.Snapshot
}

// AutoscalingReport is the replica recommendation of one model and what it rests on.
type AutoscalingReport struct {
	autoscale.Recommendation
	Model                    string
	Ready, Total, Warm, Cold int
	Waiting                  int
	Saturation               float64
	Target                   float64
	Lead                     time.Duration
	Demand, Trend, Capacity  autoscale.TokenDemand
	WaitP50, WaitP99         float64 // in seconds
	PredictedWait            time.Duration
}

// WorkerReport is the state of one worker.
type WorkerReport struct {
	Backend        Backend
	Name           string
	State, Reason  string // Reason is why it takes no requests; empty when it does
	OtherOwner     string // which instance serves it; empty when this one does
	Failure        ProbeFailure
	Reading        report.Reading
	Load           inflight.WorkerLoad
	KVFree         int64
	PrefillRate    float64 // in tokens/s
	DecodeRate     float64 // in tokens/s, at decodeRateBatch sequences
	KVOvercommit   float64
	Prefix         string // state of its cache events
	Models         []string
	NotLoadedState map[string]string // the states of its models that are not in its memory
}

// CacheReport is the state of a worker's cache events.
type CacheReport struct {
	Worker      string
	Exact       bool
	Counts      [numCacheCounts]float64
	LastEventAt time.Time         // zero: none came
	Matches     map[string]uint64 // answered prompts by the outcome of matching them with events
	// Known are the blocks that events have reported, Linked those of our own blocks that they have shown to be cached, and
	// Forgotten those that were dropped for lack of memory.
	Known, Linked int
	Forgotten     uint64
}

// Decisions returns the log of decisions, nil when none is kept.
func (r *Reporter) Decisions() *decision.Ring { return r.decisions }

// QueueLengths returns the number of waiting requests of each model.
func (r *Reporter) QueueLengths() map[string]int {
	out := make(map[string]int, len(r.groups))
	for name, p := range r.groups {
		out[name] = p.queue.Len()
	}
	return out
}

// DescribeQueues describes every model's queue, sorted by model, with at most so many tenants of each class.
func (r *Reporter) DescribeQueues(tenants int, now time.Time) []QueueReport {
	out := make([]QueueReport, 0, len(r.groups))
	for name, p := range r.groups {
		out = append(out, QueueReport{name, p.panicMode, p.queue.Snapshot(now, tenants)})
	}
	slices.SortFunc(out, func(x, y QueueReport) int { return strings.Compare(x.Model, y.Model) })
	return out
}

// ListAutoscaling describes the recommendations of one model, or of all models when model is empty.
func (r *Reporter) ListAutoscaling(model string, now time.Time) []AutoscalingReport {
	out := []AutoscalingReport{}
	for name, s := range r.autoscaling.autoscalers {
		if model == "" || model == name {
			out = append(out, r.describeAutoscaling(name, s, now))
		}
	}
	slices.SortFunc(out, func(x, y AutoscalingReport) int { return strings.Compare(x.Model, y.Model) })
	return out
}

func (r *Reporter) describeAutoscaling(name string, s *modelAutoscaler, now time.Time) AutoscalingReport {
	c := r.policy.autoscaleConfig(name)
	m := AutoscalingReport{
		Recommendation: s.recommendation, Model: name, Ready: s.readyReplicas, Saturation: s.recommendation.Use,
		Target: cmp.Or(c.TargetUse, 0.7), Lead: cmp.Or(c.Lead, 2*time.Minute),
		Demand: s.demandRate, Trend: s.demandTrend, Capacity: s.replicaRate,
	}
	m.WaitP50, m.WaitP99 = s.waits.QuantileSeconds(now)
	p := r.groups[name]
	if p == nil {
		return m
	}
	sum := r.summarizeModel(p, now)
	m.Total, m.Warm, m.Cold, m.Waiting = int(sum.Total), int(sum.Warm), int(sum.Cold), p.queue.Len()
	m.Saturation = max(m.Saturation, p.queue.Saturation(now))
	wait, ok := sum.PredictWait(spec.Standard)
	if !ok {
		wait = r.loader.coldAvailability(name, now).Wait
	}
	m.PredictedWait = wait
	return m
}

// ListWorkers describes the declared workers, sorted by name.
func (r *Reporter) ListWorkers(now time.Time) []WorkerReport {
	out := make([]WorkerReport, 0, len(r.workers))
	for _, w := range r.WorkersByName() {
		rates := w.learner.LearnedRates()
		load := r.ledger.ReadLoad(w.ledgerID, rates.PrefillRate, now)
		d := WorkerReport{
			Backend: w.Backend, Name: w.Spec.Name, State: w.statusName(), Reason: w.DownReason(), OtherOwner: w.otherOwner, Failure: w.probeFailure,
			Reading: w.reading, Load: load, KVFree: max(0, w.reading.KVTotal-load.HeldKV()), PrefillRate: rates.PrefillRate, DecodeRate: rates.DecodeRate(decodeRateBatch),
			KVOvercommit: w.overcommit.Factor(now), Prefix: w.prefixStatus(), NotLoadedState: w.notLoadedModels(),
		}
		for _, m := range w.models {
			d.Models = append(d.Models, m.ID)
		}
		out = append(out, d)
	}
	return out
}

// ListCacheEvents describes the workers with cache events.
func (r *Reporter) ListCacheEvents() (out []CacheReport) {
	for _, w := range r.WorkersByName() {
		if len(w.kvEvents.streams) == 0 {
			continue
		}
		d := CacheReport{Worker: w.Spec.Name, Exact: w.kvEvents.exact, Counts: w.kvEvents.counts, LastEventAt: w.kvEvents.lastEventAt, Matches: map[string]uint64{}}
		for o, n := range r.prefixIndex.MatchOutcomes(w.ledgerID) {
			d.Matches[kvmirror.MatchOutcome(o).String()] = n
		}
		d.Known, d.Linked, d.Forgotten = r.prefixIndex.MirrorStats(w.ledgerID)
		out = append(out, d)
	}
	return out
}

// CountModelStates counts the models of each worker by load state.
func (r *Reporter) CountModelStates() map[string][4]int {
	out := make(map[string][4]int, len(r.workers))
	for name, w := range r.workers {
		var n [4]int
		for _, p := range w.modelSlots {
			n[p.state]++
		}
		out[name] = n
	}
	return out
}

// CountWaitingForLoad counts, for each model, the requests that wait while no worker has it in memory.
func (r *Reporter) CountWaitingForLoad() map[string]int {
	out := make(map[string]int, len(r.groups))
	for name, p := range r.groups {
		out[name] = 0
		if r.hasNoReadyWorker(p) {
			out[name] = p.queue.Len()
		}
	}
	return out
}

// RetryAfter is the time in which the queue of a model works off half of what waits before a request.
func (r *Reporter) RetryAfter(v *Request, now time.Time) time.Duration {
	if p := r.groups[v.Model]; p != nil {
		return p.queue.RetryAfter(v.fairnessKey(), v.Class, now)
	}
	return 0
}

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
