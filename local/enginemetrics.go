package local

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/sched"
)

// engineMetrics collects what workers and GPU exporters report about themselves.
type engineMetrics struct {
	agent                                                *Agent
	engineInfo, loadAge, failedScrapes, ignoredValues    *prometheus.Desc
	gpuMemoryUsed, gpuMemoryFree, gpuXID, gpuRemapFailed *prometheus.Desc
}

func newEngineMetrics(a *Agent) *engineMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("spillway_local_worker_"+name, help, append([]string{"worker"}, labels...), nil)
	}
	return &engineMetrics{
		agent:          a,
		engineInfo:     desc("engine_info", "1 for the engine of the worker; auto while it is unknown.", "engine"),
		loadAge:        desc("load_age_seconds", "Time since the worker last reported its load; absent for engines that never report it."),
		failedScrapes:  desc("scrapes_failed_total", "Metrics pages of the worker that could not be read or parsed."),
		ignoredValues:  desc("metrics_ignored_total", "Values on the worker's metrics pages that were ignored because they are impossible."),
		gpuMemoryUsed:  desc("gpu_memory_used_bytes", "Memory in use on one of the worker's GPUs, from its exporter.", "gpu"),
		gpuMemoryFree:  desc("gpu_memory_free_bytes", "Memory free on one of the worker's GPUs, from its exporter.", "gpu"),
		gpuXID:         desc("gpu_xid", "The last XID error code of the driver for one of the worker's GPUs; 0 for none.", "gpu"),
		gpuRemapFailed: desc("gpu_row_remap_failed", "1 when one of the worker's GPUs has failed to remap broken memory rows.", "gpu"),
	}
}

// Describe lists the metrics.
func (m *engineMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.engineInfo, m.loadAge, m.failedScrapes, m.ignoredValues, m.gpuMemoryUsed, m.gpuMemoryFree, m.gpuXID, m.gpuRemapFailed} {
		ch <- d
	}
}

// Collect reads the metrics from the scheduler's state.
func (m *engineMetrics) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	var workers []sched.WorkerReport
	m.agent.scheduler.update(func(s *sched.Scheduler) { workers = s.Reports.ListWorkers(now) })
	for i := range workers {
		w, name := workers[i].Backend.(*zoneWorker), workers[i].Name
		reading := &workers[i].Reading
		var gpus engine.GPUReadings
		m.agent.scheduler.update(func(*sched.Scheduler) { gpus = w.gpus })
		emit := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, t, v, append([]string{name}, labels...)...)
		}
		emit(m.engineInfo, prometheus.GaugeValue, 1, w.EngineName())
		if !reading.LoadReadAt.IsZero() {
			emit(m.loadAge, prometheus.GaugeValue, max(0, now.Sub(reading.LoadReadAt).Seconds()))
		}
		emit(m.failedScrapes, prometheus.CounterValue, float64(w.failedScrapes.Load()))
		emit(m.ignoredValues, prometheus.CounterValue, float64(reading.Ignored+gpus.Ignored))
		for _, c := range gpus.Cards {
			fault := 0.0
			if c.RemapFailed {
				fault = 1
			}
			emit(m.gpuMemoryUsed, prometheus.GaugeValue, float64(c.Used), c.Name)
			emit(m.gpuMemoryFree, prometheus.GaugeValue, float64(c.Free), c.Name)
			emit(m.gpuXID, prometheus.GaugeValue, float64(c.XID), c.Name)
			emit(m.gpuRemapFailed, prometheus.GaugeValue, fault, c.Name)
		}
	}
}
