package local

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// meters are the instance's metrics. Labels are bounded: models by the pools there are, codes by those we send.
type meters struct {
	agent    *Agent
	requests *prometheus.CounterVec
	refusals *prometheus.CounterVec
	retries  prometheus.Counter
	unkept   prometheus.Counter
	hedges   *prometheus.CounterVec
	falls    *prometheus.CounterVec
	tokens   *prometheus.CounterVec
	waits    *prometheus.HistogramVec
	ttft     *prometheus.HistogramVec
	errors   *prometheus.HistogramVec
	resumes  *prometheus.CounterVec
	known    knownMeters

	workers, inFlight, kvFree, overcommit, prefixes, prefill, queued, instances, owned *prometheus.Desc
}

func newMeters(r *prometheus.Registry, a *Agent) *meters {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_local_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "spillway_local_" + name, Help: help, Buckets: telemetry.WaitBuckets()}, labels)
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("spillway_local_"+name, help, labels, nil)
	}
	m := &meters{
		agent:    a,
		requests: counter("attempts_total", "Requests forwarded to a worker, by what came of it.", "model", "outcome"),
		refusals: counter("refusals_total", "Requests answered without a worker, by code.", "code"),
		tokens:   counter("tokens_total", "Tokens of answers by model, class and kind (prompt, of which cached, and completion); source tells what engines stated from what was estimated.", "model", "class", "kind", "source"),
		falls:    counter("fallbacks_total", "Requests that a model's fallback answered, by the model that was meant and the one that served.", "model", "served"),
		waits:    histogram("queue_wait_seconds", "Time from arrival to being sent to a worker.", "model", "class"),
		ttft:     histogram("time_to_first_byte_seconds", "Time from being sent to a worker to the answer's first byte.", "model"),
		errors: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "spillway_local_prediction_error_ratio", Buckets: []float64{.1, .2, .33, .5, .67, .8, .9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10},
			Help: "Observed over predicted time to first token of streams: 1 is a true prediction, above it workers were slower.",
		}, []string{"model"}),
		hedges:     counter("hedges_total", "Requests whose first byte was overdue, by what came of a second attempt beside the first: won, lost, failed, or not made (no_budget, no_room).", "model", "outcome"),
		retries:    prometheus.NewCounter(prometheus.CounterOpts{Name: "spillway_local_retries_total", Help: "Requests tried a second time on another worker."}),
		unkept:     prometheus.NewCounter(prometheus.CounterOpts{Name: "spillway_local_directives_unkept_total", Help: "Directives that are in force and could not be written to disk: a restart without the gateways would not know them."}),
		workers:    desc("worker_state", "1 for the state that the worker is in.", "worker", "state"),
		inFlight:   desc("worker_in_flight", "Requests sent to the worker and not finished.", "worker"),
		kvFree:     desc("worker_kv_free_tokens", "KV cache not reserved, in tokens.", "worker"),
		overcommit: desc("worker_kv_overcommit_ratio", "Part of the KV cache that may be promised: it falls when the worker preempts or runs out of memory.", "worker"),
		prefixes:   desc("prefix_index_blocks", "Distinct prompt blocks that some worker is believed to have cached."),
		prefill:    desc("worker_prefill_tokens_per_second", "Learned prefill rate.", "worker"),
		instances:  desc("instances", "Live instances of the zone, this one included, among which its workers are divided."),
		owned:      desc("workers_served", "Workers that this instance serves: those of the zone less the other instances'."),
		queued:     desc("queue_length", "Requests waiting for a worker.", "model"),
	}
	m.resumes = newResumes(r, a)
	m.known = m.newKnown()
	r.MustRegister(m.requests, m.refusals, m.tokens, m.waits, m.ttft, m.errors, m.retries, m.unkept, m.falls, m.hedges, m, newQueueMeters(a))
	return m
}

// Describe lists the metrics that are read off the floor when asked for.
func (m *meters) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.workers, m.inFlight, m.kvFree, m.overcommit, m.prefixes, m.prefill, m.queued, m.instances, m.owned} {
		ch <- d
	}
}

// Collect reads them.
func (m *meters) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := m.agent.Status()
	for i := range s.Workers {
		w := &s.Workers[i]
		gauge(m.workers, 1, w.Name, w.State)
		gauge(m.inFlight, float64(w.InFlight), w.Name)
		gauge(m.kvFree, float64(w.KVFree), w.Name)
		gauge(m.overcommit, w.KVOvercommit, w.Name)
		gauge(m.prefill, w.PrefillRate, w.Name)
	}
	instances, owned := m.agent.share()
	gauge(m.instances, float64(instances))
	gauge(m.owned, float64(owned))
	gauge(m.prefixes, float64(m.agent.floor.prefixes()))
	for name, n := range m.agent.floor.queueLengths() {
		gauge(m.queued, float64(n), name)
	}
}

func (f *floor) prefixes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.index.Len()
}

func (f *floor) queueLengths() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[string]int, len(f.pools))
	for name, p := range f.pools {
		out[name] = p.queue.Len()
	}
	return out
}

func (m *meters) refused(e *openai.Error) { m.refusals.WithLabelValues(e.Code).Inc() }

// done counts one attempt.
func (m *meters) done(v *visit, at *attempt, res *relay.Result) {
	m.known.requests.Of(attemptKey{v.model, outcome(res)}).Inc()
	if !at.hedge {
		m.known.waits.Of(waitKey{v.model, v.class}).Observe(at.sent.Sub(v.arrived).Seconds())
	}
	if !res.FirstByte.IsZero() {
		seconds := max(0, res.FirstByte.Sub(at.sent)).Seconds()
		m.known.ttft.Of(v.model).Observe(seconds)
		if v.env.Stream && res.Status/100 == 2 && at.choice.Seconds > 0 {
			m.errors.WithLabelValues(v.model).Observe(seconds / at.choice.Seconds)
		}
	}
}

// spent counts the tokens of one answer.
func (m *meters) spent(v *visit, u openai.Usage) {
	for _, x := range [...]struct {
		kind string
		n    int
	}{{"prompt", u.Prompt}, {"cached", u.Cached}, {"completion", u.Completion}} {
		if x.n > 0 {
			m.known.tokens.Of(tokenKey{v.model, v.class, x.kind, u.Source()}).Add(float64(x.n))
		}
	}
}

// classOf are the outcomes of answers, by the first digit of their status.
var classOf = [...]string{"0xx", "1xx", "2xx", "3xx", "4xx", "5xx", "6xx", "7xx", "8xx", "9xx"}

func outcome(res *relay.Result) string {
	switch {
	case res.Outrun:
		return "outrun"
	case res.ClientGone:
		return "client_gone"
	case res.Late:
		return "late"
	case res.Truncated:
		return "truncated"
	case res.Refused != nil && !res.NotStarted && res.Status >= 100 && res.Status < 1000:
		return classOf[res.Status/100]
	case res.Err != nil:
		return "failed"
	}
	return classOf[min(max(res.Status/100, 0), len(classOf)-1)]
}
