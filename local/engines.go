package local

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// engineMeters are the metrics of what workers and their exporters say of themselves.
type engineMeters struct {
	agent                                       *Agent
	engine, age, unread, ignored                *prometheus.Desc
	cardUsed, cardFree, cardXID, cardRemapFault *prometheus.Desc
}

func newEngineMeters(a *Agent) *engineMeters {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("spillway_local_worker_"+name, help, append([]string{"worker"}, labels...), nil)
	}
	return &engineMeters{
		agent:          a,
		engine:         desc("engine_info", "1 for the dialect that the worker speaks; auto while that is not known.", "engine"),
		age:            desc("load_age_seconds", "Time since the worker last told its load; not there for engines that never do."),
		unread:         desc("scrapes_failed_total", "Metrics pages of the worker that could not be read or understood."),
		ignored:        desc("metrics_ignored_total", "Values on the worker's metrics pages that were left out because they cannot be."),
		cardUsed:       desc("gpu_memory_used_bytes", "Memory in use on one of the worker's GPUs, by its exporter.", "gpu"),
		cardFree:       desc("gpu_memory_free_bytes", "Memory free on one of the worker's GPUs, by its exporter.", "gpu"),
		cardXID:        desc("gpu_xid", "The last error code of the driver of one of the worker's GPUs; 0 for none.", "gpu"),
		cardRemapFault: desc("gpu_row_remap_failed", "1 when one of the worker's GPUs has no spare rows left for broken memory.", "gpu"),
	}
}

// Describe lists the metrics.
func (m *engineMeters) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.engine, m.age, m.unread, m.ignored, m.cardUsed, m.cardFree, m.cardXID, m.cardRemapFault} {
		ch <- d
	}
}

// Collect reads them off the floor.
func (m *engineMeters) Collect(ch chan<- prometheus.Metric) {
	f := m.agent.floor
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for _, w := range f.workers {
		name := w.declared.Name
		say := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, t, v, append([]string{name}, labels...)...)
		}
		say(m.engine, prometheus.GaugeValue, 1, w.engine.Name())
		if !w.reading.LoadAt.IsZero() {
			say(m.age, prometheus.GaugeValue, max(0, now.Sub(w.reading.LoadAt).Seconds()))
		}
		say(m.unread, prometheus.CounterValue, w.unread)
		say(m.ignored, prometheus.CounterValue, float64(w.reading.Ignored+w.cards.Ignored))
		for _, c := range w.cards.Cards {
			fault := 0.0
			if c.RemapFailed {
				fault = 1
			}
			say(m.cardUsed, prometheus.GaugeValue, float64(c.Used), c.Name)
			say(m.cardFree, prometheus.GaugeValue, float64(c.Free), c.Name)
			say(m.cardXID, prometheus.GaugeValue, float64(c.XID), c.Name)
			say(m.cardRemapFault, prometheus.GaugeValue, fault, c.Name)
		}
	}
}
