package local

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/warm"
)

// warmWithin is the load time up to which a model that is not loaded counts as warm, in seconds.
const warmWithin = 2.0

// latent counts a worker that could have the model and does not take requests for it now.
func (f *floor) latent(m *capacity.Model, model string, w *worker, now time.Time) {
	if w.gone || w.drained || w.breaker.State() == health.Open {
		return
	}
	p := w.places[model]
	asleep := w.reading.Asleep || w.nap.state != warm.Loadable
	switch {
	case asleep && w.declared.Wake && !now.Before(w.nap.retry):
		m.Warm++
		m.WarmMillis = soonest(m.WarmMillis, f.wakeSeconds(w))
	case asleep, p == nil, p.state == warm.Loaded, now.Before(p.retry):
	case f.loadSeconds(w, model, p) <= warmWithin:
		m.Warm++
		m.WarmMillis = soonest(m.WarmMillis, f.loadSeconds(w, model, p))
	default:
		m.Cold++
		m.ColdMillis = soonest(m.ColdMillis, f.loadSeconds(w, model, p))
	}
}

// soonest is the shorter of a time in milliseconds, 0 for none, and one in seconds.
func soonest(millis int64, seconds float64) int64 {
	is := max(1, int64(math.Ceil(seconds*1000)))
	if millis == 0 {
		return is
	}
	return min(millis, is)
}

// warmMeters are the metrics of what is loaded. Labels are bounded: models by the pools there are, workers by the list.
type warmMeters struct {
	agent           *Agent
	loads           *prometheus.CounterVec
	seconds         *prometheus.HistogramVec
	places, waiting *prometheus.Desc
}

func newWarmMeters(r *prometheus.Registry, a *Agent) *warmMeters {
	m := &warmMeters{
		agent: a,
		loads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_local_model_changes_total", Help: "Loads, unloads, wakings and sleeps that workers were told to make, by what came of it.",
		}, []string{"what", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "spillway_local_model_load_seconds", Help: "Time that a load or a waking took.",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640},
		}, []string{"what"}),
		places:  prometheus.NewDesc("spillway_local_worker_models", "Models of a worker by state: ready, loading, unloading or cold.", []string{"worker", "state"}, nil),
		waiting: prometheus.NewDesc("spillway_local_waitingfor_load", "Requests that wait while no worker has their model in memory.", []string{"model"}, nil),
	}
	r.MustRegister(m.loads, m.seconds, m, newScaleMeters(a))
	return m
}

// did counts one change.
func (m *warmMeters) did(c chore, took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	m.loads.WithLabelValues(c.kind.String(), outcome).Inc()
	if err == nil && (c.kind == warm.Load || c.kind == warm.Wake) {
		m.seconds.WithLabelValues(c.kind.String()).Observe(took.Seconds())
	}
}

// Describe lists the metrics that are read off the floor.
func (m *warmMeters) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.places
	ch <- m.waiting
}

// Collect reads them.
func (m *warmMeters) Collect(ch chan<- prometheus.Metric) {
	f := m.agent.floor
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.workers {
		var n [4]int
		for _, p := range w.places {
			n[p.state]++
		}
		for s := range n {
			ch <- prometheus.MustNewConstMetric(m.places, prometheus.GaugeValue, float64(n[s]), w.declared.Name, warm.State(s).String())
		}
	}
	for name, p := range f.pools {
		waiting := 0
		if f.hopeless(p) {
			waiting = p.queue.Len()
		}
		ch <- prometheus.MustNewConstMetric(m.waiting, prometheus.GaugeValue, float64(waiting), name)
	}
}
