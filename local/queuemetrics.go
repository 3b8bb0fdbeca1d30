package local

import "github.com/prometheus/client_golang/prometheus"

// queueMetrics exports the queues as metrics. Labels are bounded: models by the model groups, classes and reasons by constants.
type queueMetrics struct {
	agent *Agent

	saturation, oldestSeconds, refusals, evictions, panicMode *prometheus.Desc
}

func newQueueMetrics(a *Agent) *queueMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("spillway_local_"+name, help, labels, nil)
	}
	return &queueMetrics{
		agent:         a,
		saturation:    desc("queue_saturation_ratio", "1 when the queue is full, or when a class would wait as long as its target.", "model"),
		oldestSeconds: desc("queue_oldest_seconds", "Age of the oldest waiting request.", "model", "class"),
		refusals:      desc("queue_refusals_total", "Requests refused by the queue, by reason.", "model", "class", "reason"),
		evictions:     desc("queue_evictions_total", "Waiting requests evicted in favor of more urgent ones.", "model", "class"),
		panicMode:     desc("pool_panic", "1 while so few workers are healthy that workers ejected for errors or latency are used too.", "model"),
	}
}

// Describe lists the queue metrics.
func (m *queueMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.saturation, m.oldestSeconds, m.refusals, m.evictions, m.panicMode} {
		ch <- d
	}
}

// Collect reads them from the scheduler.
func (m *queueMetrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for _, q := range m.agent.scheduler.describeQueues(0) {
		gauge(m.saturation, q.Saturation, q.Model)
		gauge(m.panicMode, map[bool]float64{true: 1}[q.Panic], q.Model)
		for _, c := range q.Classes {
			gauge(m.oldestSeconds, float64(c.OldestMS)/1000, q.Model, c.Class)
			counter(m.evictions, c.Evicted, q.Model, c.Class)
			for why, n := range c.Refused {
				counter(m.refusals, n, q.Model, c.Class, why)
			}
		}
	}
}
