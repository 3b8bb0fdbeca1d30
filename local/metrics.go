package local

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/resume"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/sched"
)

// agentMetrics are the instance's metrics. Labels are bounded: models by the model groups, codes by the codes that Spillway sends.
type agentMetrics struct {
	agent            *Agent
	attempts         *prometheus.CounterVec
	refusals         *prometheus.CounterVec
	retries          prometheus.Counter
	persistFailures  prometheus.Counter
	hedges           *prometheus.CounterVec
	fallbacks        *prometheus.CounterVec
	tokens           *prometheus.CounterVec
	queueWaits       *prometheus.HistogramVec
	ttft             *prometheus.HistogramVec
	predictionErrors *prometheus.HistogramVec
	resumes          *prometheus.CounterVec
	loopRequests     *prometheus.CounterVec
	cached           cachedSeries

	workerStates, inFlight, kvFree, overcommit, prefixBlocks, prefillRate, queueLength, instances, ownedWorkers *prometheus.Desc
}

func newAgentMetrics(r *prometheus.Registry, a *Agent) *agentMetrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_local_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "spillway_local_" + name, Help: help, Buckets: telemetry.WaitBuckets()}, labels)
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("spillway_local_"+name, help, labels, nil)
	}
	m := &agentMetrics{
		agent:      a,
		attempts:   counter("attempts_total", "Requests forwarded to a worker, by outcome.", "model", "outcome"),
		refusals:   counter("refusals_total", "Requests answered without a worker, by code.", "code"),
		tokens:     counter("tokens_total", "Tokens by model, class and kind (prompt, of which cached, and completion); source separates counts of the engine from estimates.", "model", "class", "kind", "source"),
		fallbacks:  counter("fallbacks_total", "Requests served by a fallback model, by requested model and serving model.", "model", "served"),
		queueWaits: histogram("queue_wait_seconds", "Time from arrival to being sent to a worker.", "model", "class"),
		ttft:       histogram("time_to_first_byte_seconds", "Time from being sent to a worker to the answer's first byte.", "model"),
		predictionErrors: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "spillway_local_prediction_error_ratio", Buckets: []float64{.1, .2, .33, .5, .67, .8, .9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10},
			Help: "Observed over predicted time to first token of streams: 1 is an exact prediction, above it workers were slower.",
		}, []string{"model"}),
		hedges:          counter("hedges_total", "Requests whose first byte was overdue, by outcome of a second, concurrent attempt: won, lost, failed, or not made (no_budget, no_room).", "model", "outcome"),
		loopRequests:    counter("loop_requests_total", "Requests that arrived on the request loop, by how far it served them: completed, or continued on a goroutine because of syntax (an unusual, large or late request), declined (path, model or worker), decided (refused, late or hedged), unsent (no connection to the worker), answer (an unusual or missing answer), broken (the answer broke off), client (the client left) or aborted (the attempt was given up).", "result"),
		retries:         prometheus.NewCounter(prometheus.CounterOpts{Name: "spillway_local_retries_total", Help: "Requests tried a second time on another worker."}),
		persistFailures: prometheus.NewCounter(prometheus.CounterOpts{Name: "spillway_local_directive_persist_failures_total", Help: "Directives in force that could not be written to disk: a restart without gateways loses them."}),
		workerStates:    desc("worker_state", "1 for the current state of the worker.", "worker", "state"),
		inFlight:        desc("worker_in_flight", "Requests sent to the worker and not finished.", "worker"),
		kvFree:          desc("worker_kv_free_tokens", "KV cache not reserved, in tokens.", "worker"),
		overcommit:      desc("worker_kv_overcommit_ratio", "Share of the KV cache that may be reserved: it falls when the worker preempts or runs out of memory.", "worker"),
		prefixBlocks:    desc("prefix_index_blocks", "Distinct prompt blocks that some worker is estimated to have cached."),
		prefillRate:     desc("worker_prefill_tokens_per_second", "Learned prefill rate.", "worker"),
		instances:       desc("instances", "Live instances of the zone, this one included, to which its workers are assigned."),
		ownedWorkers:    desc("workers_served", "Workers assigned to this instance."),
		queueLength:     desc("queue_length", "Requests waiting for a worker.", "model"),
	}
	m.resumes = newResumeCounter(r, a)
	m.cached = m.newCachedSeries()
	r.MustRegister(m.attempts, m.refusals, m.tokens, m.queueWaits, m.ttft, m.predictionErrors, m.retries, m.persistFailures, m.fallbacks, m.hedges, m.loopRequests, m, newQueueMetrics(a))
	return m
}

// Describe lists the metrics that are read from the scheduler at collection.
func (m *agentMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.workerStates, m.inFlight, m.kvFree, m.overcommit, m.prefixBlocks, m.prefillRate, m.queueLength, m.instances, m.ownedWorkers} {
		ch <- d
	}
}

// Collect reads them from the scheduler.
func (m *agentMetrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := m.agent.Status()
	for i := range s.Workers {
		w := &s.Workers[i]
		gauge(m.workerStates, 1, w.Name, w.State)
		gauge(m.inFlight, float64(w.InFlight), w.Name)
		gauge(m.kvFree, float64(w.KVFree), w.Name)
		gauge(m.overcommit, w.KVOvercommit, w.Name)
		gauge(m.prefillRate, w.PrefillRate, w.Name)
	}
	instances, owned := m.agent.sharing.countOwnedWorkers()
	gauge(m.instances, float64(instances))
	gauge(m.ownedWorkers, float64(owned))
	var blocks int
	var queued map[string]int
	m.agent.scheduler.update(func(s *sched.Scheduler) { blocks, queued = s.Cache.CountPrefixBlocks(), s.Reports.QueueLengths() })
	gauge(m.prefixBlocks, float64(blocks))
	for name, n := range queued {
		gauge(m.queueLength, float64(n), name)
	}
}

func (m *agentMetrics) countRefused(e *openai.Error) { m.refusals.WithLabelValues(e.Code).Inc() }

// countAttempt counts one attempt.
func (m *agentMetrics) countAttempt(v *zoneRequest, at *sched.Attempt, res *forward.Result) {
	m.cached.requests.FindMember(attemptKey{v.Model, outcomeLabel(res)}).Inc()
	if !at.IsHedge {
		m.cached.waits.FindMember(waitKey{v.Model, v.Class}).Observe(at.SentAt.Sub(v.ArrivedAt).Seconds())
	}
	if !res.FirstByteAt.IsZero() {
		seconds := max(0, res.FirstByteAt.Sub(at.SentAt)).Seconds()
		m.cached.ttft.FindMember(v.Model).Observe(seconds)
		if v.Envelope.Stream && res.Status/100 == 2 && at.Choice.PredictedTTFT > 0 {
			m.predictionErrors.WithLabelValues(v.Model).Observe(seconds / at.Choice.PredictedTTFT)
		}
	}
}

// countTokens counts the tokens of one answer.
func (m *agentMetrics) countTokens(v *zoneRequest, u openai.TokenUsage) {
	v.trace.SetUsage(&u)
	for _, x := range [...]struct {
		kind string
		n    int
	}{{"prompt", u.Prompt}, {"cached", u.Cached}, {"completion", u.Completion}} {
		if x.n > 0 {
			m.cached.tokens.FindMember(tokenKey{v.Model, v.Class, x.kind, u.Source()}).Add(float64(x.n))
		}
	}
}

// statusClasses are the outcomes of answers, by the first digit of their status.
var statusClasses = [...]string{"0xx", "1xx", "2xx", "3xx", "4xx", "5xx", "6xx", "7xx", "8xx", "9xx"}

func outcomeLabel(res *forward.Result) string {
	switch res.Outcome {
	case forward.LostRace:
		return "outrun"
	case forward.ClientGone, forward.RequestBroken:
		return "client_gone"
	case forward.DeadlinePassed:
		return "late"
	case forward.BrokenOff, forward.StreamBroken, forward.Interrupted:
		return "truncated"
	}
	switch {
	case res.Refusal != nil && !res.NoWorkBegun && res.Status >= 100 && res.Status < 1000:
		return statusClasses[res.Status/100]
	case res.Err != nil:
		return "failed"
	}
	return statusClasses[min(max(res.Status/100, 0), len(statusClasses)-1)]
}

// cachedSeries caches the series of metrics that every request updates, by their labels.
type cachedSeries struct {
	requests *telemetry.MemberCache[attemptKey, prometheus.Counter]
	waits    *telemetry.MemberCache[waitKey, prometheus.Observer]
	ttft     *telemetry.MemberCache[string, prometheus.Observer]
	tokens   *telemetry.MemberCache[tokenKey, prometheus.Counter]
}

type (
	attemptKey struct{ model, outcome string }
	waitKey    struct {
		model string
		class spec.Class
	}
	tokenKey struct {
		model        string
		class        spec.Class
		kind, source string
	}
)

func (m *agentMetrics) newCachedSeries() cachedSeries {
	return cachedSeries{
		requests: telemetry.NewMemberCache(func(k attemptKey) prometheus.Counter { return m.attempts.WithLabelValues(k.model, k.outcome) }),
		waits:    telemetry.NewMemberCache(func(k waitKey) prometheus.Observer { return m.queueWaits.WithLabelValues(k.model, k.class.String()) }),
		ttft:     telemetry.NewMemberCache(func(model string) prometheus.Observer { return m.ttft.WithLabelValues(model) }),
		tokens: telemetry.NewMemberCache(func(k tokenKey) prometheus.Counter {
			return m.tokens.WithLabelValues(k.model, k.class.String(), k.kind, k.source)
		}),
	}
}

// newResumeCounter registers the counter of interrupted streams and the gauge of the text kept for them.
func newResumeCounter(r prometheus.Registerer, a *Agent) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillway_local_resumes_total",
		Help: "Streams whose worker failed, by outcome (resumed, ended: only the end was missing, failed, not: not attempted) and the reason if not resumed.",
	}, []string{"outcome", "reason"})
	r.MustRegister(c, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_local_resume_text_bytes", Help: "Text of open streams stored for resuming them, in bytes.",
	}, func() float64 { return float64(a.attempts.textStore.HeldBytes()) }))
	return c
}

func (m *agentMetrics) countResume(outcome string, why resume.NotResumableReason) {
	m.resumes.WithLabelValues(outcome, string(why)).Inc()
}
