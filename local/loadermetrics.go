package local

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/local/modelload"
	"github.com/spillway-lb/spillway/local/sched"
)

// loaderMetrics are the metrics of model loading. Labels are bounded: models by the model groups, workers by the worker list.
type loaderMetrics struct {
	agent                         *Agent
	actions                       *prometheus.CounterVec
	loadSeconds                   *prometheus.HistogramVec
	workerModels, waitingRequests *prometheus.Desc
}

func newLoaderMetrics(r *prometheus.Registry, a *Agent) *loaderMetrics {
	m := &loaderMetrics{
		agent: a,
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_local_model_changes_total", Help: "Loads, unloads, wakes and sleeps of workers, by outcome.",
		}, []string{"what", "outcome"}),
		loadSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "spillway_local_model_load_seconds", Help: "Duration of a load or a wake.",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640},
		}, []string{"what"}),
		workerModels:    prometheus.NewDesc("spillway_local_worker_models", "Models of a worker by state: ready, loading, unloading or cold.", []string{"worker", "state"}, nil),
		waitingRequests: prometheus.NewDesc("spillway_local_requests_waiting_for_model_load", "Requests that wait while no worker has their model in memory.", []string{"model"}, nil),
	}
	r.MustRegister(m.actions, m.loadSeconds, m, newAutoscaleMetrics(a))
	return m
}

// countAction counts one finished action.
func (m *loaderMetrics) countAction(c sched.LoadAction, took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	m.actions.WithLabelValues(c.Kind.String(), outcome).Inc()
	if err == nil && (c.Kind == modelload.ActionLoad || c.Kind == modelload.ActionWake) {
		m.loadSeconds.WithLabelValues(c.Kind.String()).Observe(took.Seconds())
	}
}

// Describe lists the metrics that are read from the scheduler.
func (m *loaderMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.workerModels
	ch <- m.waitingRequests
}

// Collect reads them from the scheduler.
func (m *loaderMetrics) Collect(ch chan<- prometheus.Metric) {
	var states map[string][4]int
	var waiting map[string]int
	m.agent.scheduler.update(func(s *sched.Scheduler) {
		states, waiting = s.Reports.CountModelStates(), s.Reports.CountWaitingForLoad()
	})
	for worker, n := range states {
		for s := range n {
			ch <- prometheus.MustNewConstMetric(m.workerModels, prometheus.GaugeValue, float64(n[s]), worker, modelload.LoadState(s).String())
		}
	}
	for model, n := range waiting {
		ch <- prometheus.MustNewConstMetric(m.waitingRequests, prometheus.GaugeValue, float64(n), model)
	}
}
