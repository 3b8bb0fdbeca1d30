package local

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

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

// autoscaleMetrics exports the autoscaling signals. Labels are bounded by the number of models.
type autoscaleMetrics struct {
	agent                                                                      *Agent
	desired, needed, saturation, demand, capacity, predictedWait, measuredWait *prometheus.Desc
}

func newAutoscaleMetrics(a *Agent) *autoscaleMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("spillway_local_"+name, help, append([]string{"model"}, labels...), nil)
	}
	return &autoscaleMetrics{
		agent:         a,
		desired:       desc("desired_replicas", "Recommended replicas of the zone by this instance's demand, within the spec's bounds."),
		needed:        desc("needed_replicas", "Replicas that this instance's share of the demand needs, before rounding and bounds: sum it over a zone's instances."),
		saturation:    desc("saturation_ratio", "Demand divided by the capacity of the ready replicas, or the fill ratio of the queue if that is greater."),
		demand:        desc("demand_tokens_per_second", "Tokens requested in the last half minute, refused requests included.", "kind"),
		capacity:      desc("replica_tokens_per_second", "Learned throughput of one replica, in tokens/s.", "kind"),
		predictedWait: desc("predicted_wait_seconds", "Predicted queue wait of a new request of class standard, including a model load."),
		measuredWait:  desc("measured_wait_seconds", "Queue wait of the last minute's requests, by percentile.", "percentile"),
	}
}

// Describe lists the metrics.
func (m *autoscaleMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.desired, m.needed, m.saturation, m.demand, m.capacity, m.predictedWait, m.measuredWait} {
		ch <- d
	}
}

// Collect reads them from the scheduler.
func (m *autoscaleMetrics) Collect(ch chan<- prometheus.Metric) {
	emit := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, s := range m.agent.scheduler.listAutoscaling("", time.Now(), false) {
		emit(m.desired, float64(s.Desired), s.Model)
		emit(m.needed, s.Needed, s.Model)
		emit(m.saturation, s.Saturation, s.Model)
		emit(m.demand, s.Demand.Prefill, s.Model, "prefill")
		emit(m.demand, s.Demand.Decode, s.Model, "decode")
		emit(m.capacity, s.Capacity.Prefill, s.Model, "prefill")
		emit(m.capacity, s.Capacity.Decode, s.Model, "decode")
		emit(m.predictedWait, s.PredictedWait, s.Model)
		emit(m.measuredWait, s.WaitP50, s.Model, "50")
		emit(m.measuredWait, s.WaitP99, s.Model, "99")
	}
}
