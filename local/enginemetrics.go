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

// kvEventMetrics collects metrics of cache events and of the accuracy of the prefix index.
type kvEventMetrics struct {
	agent                                                                                         *Agent
	events, streamEvents, promptMatches, exact, eventAge, knownBlocks, forgottenBlocks, hitTokens *prometheus.Desc
}

func newKVEventMetrics(a *Agent) *kvEventMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("spillway_local_"+name, help, labels, nil)
	}
	return &kvEventMetrics{
		agent:           a,
		events:          desc("worker_kv_events_total", "Cache events of the worker, by kind; ignored ones are of unknown kinds or not of the GPU cache for whole prefixes.", "worker", "kind"),
		streamEvents:    desc("worker_kv_stream_total", "Faults of the worker's stream of cache events: gap, restart, garbled, lost.", "worker", "what"),
		promptMatches:   desc("worker_kv_matches_total", "Answered prompts matched with the worker's cache events, by outcome: linked (to their blocks), shared (a few candidates), unsure, void (no block had to be stored), refuted (no block was stored), and one more for workers that sent no events.", "worker", "outcome"),
		exact:           desc("worker_prefix_exact", "1 while the worker's cache contents are known from its events, 0 while they are estimated.", "worker"),
		eventAge:        desc("worker_kv_event_age_seconds", "Time since the worker's last cache event.", "worker"),
		knownBlocks:     desc("worker_kv_known_blocks", "Blocks of the worker's cache that its events have reported.", "worker"),
		forgottenBlocks: desc("worker_kv_blocks_dropped_total", "Blocks of the worker's cache that were dropped for lack of memory; raise prefix_index.", "worker"),
		hitTokens:       desc("prefix_tokens_total", "Prompt tokens of answers whose engine reports cached tokens, by kind: all (prompt), overestimated as cached (over), and underestimated (under).", "mode", "kind"),
	}
}

// Describe lists the metrics.
func (m *kvEventMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.events, m.streamEvents, m.promptMatches, m.exact, m.eventAge, m.knownBlocks, m.forgottenBlocks, m.hitTokens} {
		ch <- d
	}
}

// Collect reads the metrics from the scheduler's state.
func (m *kvEventMetrics) Collect(ch chan<- prometheus.Metric) {
	var scores [2]sched.HitScore
	var workers []sched.CacheReport
	m.agent.scheduler.update(func(s *sched.Scheduler) { scores, workers = s.Cache.HitScores, s.Reports.ListCacheEvents() })
	emit := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, v, labels...)
	}
	for i, h := range scores {
		for kind, v := range map[string]float64{"prompt": h.Prompt, "over": h.Over, "under": h.Under} {
			emit(m.hitTokens, prometheus.CounterValue, v, sched.IndexModeName(i), kind)
		}
	}
	now := time.Now()
	for i := range workers {
		w := &workers[i]
		for kind, i := range map[string]sched.CacheCount{"stored": sched.CountStored, "removed": sched.CountRemoved, "cleared": sched.CountCleared, "ignored": sched.CountIgnored} {
			emit(m.events, prometheus.CounterValue, w.Counts[i], w.Worker, kind)
		}
		for what, i := range map[string]sched.CacheCount{"gap": sched.CountGap, "restart": sched.CountRestart, "garbled": sched.CountMalformed, "lost": sched.CountLost} {
			emit(m.streamEvents, prometheus.CounterValue, w.Counts[i], w.Worker, what)
		}
		for outcome, n := range w.Matches {
			emit(m.promptMatches, prometheus.CounterValue, float64(n), w.Worker, outcome)
		}
		exact := 0.0
		if w.Exact {
			exact = 1
		}
		emit(m.exact, prometheus.GaugeValue, exact, w.Worker)
		if !w.LastEventAt.IsZero() {
			emit(m.eventAge, prometheus.GaugeValue, max(0, now.Sub(w.LastEventAt).Seconds()), w.Worker)
		}
		emit(m.knownBlocks, prometheus.GaugeValue, float64(w.Known), w.Worker)
		emit(m.forgottenBlocks, prometheus.CounterValue, float64(w.Forgotten), w.Worker)
	}
}
