package local

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/local/pick"
)

// feedMeters are the metrics of cache events and of what they are worth.
type feedMeters struct {
	agent                                                      *Agent
	events, stream, claims, exact, age, known, forgotten, hits *prometheus.Desc
}

func newFeedMeters(a *Agent) *feedMeters {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("spillway_local_"+name, help, labels, nil)
	}
	return &feedMeters{
		agent:     a,
		events:    desc("worker_kv_events_total", "Cache events of the worker, by kind; ignored ones are of unknown kinds or not of the GPU's cache of whole prefixes.", "worker", "kind"),
		stream:    desc("worker_kv_stream_total", "What has happened to the worker's stream of cache events: gap, restart, garbled, lost.", "worker", "what"),
		claims:    desc("worker_kv_claims_total", "Answers whose prompts were looked for among the worker's cache events, by outcome: linked to their blocks, shared between a few that could be theirs, unsure, void (nothing had to be stored), refuted (nothing was), unheard.", "worker", "outcome"),
		exact:     desc("worker_prefix_exact", "1 while what the worker has cached is known by its events, 0 while it is guessed.", "worker"),
		age:       desc("worker_kv_event_age_seconds", "Time since the worker's last cache event.", "worker"),
		known:     desc("worker_kv_known_blocks", "Blocks of the worker's cache that its events have told of.", "worker"),
		forgotten: desc("worker_kv_forgotten_total", "Blocks of the worker's cache that were forgotten for want of memory: raise prefix_index.", "worker"),
		hits:      desc("prefix_tokens_total", "Prompt tokens of answers whose engine says what was cached: all of them, believed too much, and believed too little.", "mode", "kind"),
	}
}

// Describe lists the metrics.
func (m *feedMeters) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.events, m.stream, m.claims, m.exact, m.age, m.known, m.forgotten, m.hits} {
		ch <- d
	}
}

// Collect reads them off the floor.
func (m *feedMeters) Collect(ch chan<- prometheus.Metric) {
	f := m.agent.floor
	f.mu.Lock()
	defer f.mu.Unlock()
	say := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, v, labels...)
	}
	for i := range f.hits {
		for kind, v := range map[string]float64{"prompt": f.hits[i].prompt, "over": f.hits[i].over, "under": f.hits[i].under} {
			say(m.hits, prometheus.CounterValue, v, mode(i), kind)
		}
	}
	now := time.Now()
	for name, w := range f.workers {
		if len(w.feed.streams) == 0 {
			continue
		}
		for kind, i := range map[string]int{"stored": countStored, "removed": countRemoved, "cleared": countCleared, "ignored": countIgnored} {
			say(m.events, prometheus.CounterValue, w.feed.counts[i], name, kind)
		}
		for what, i := range map[string]int{"gap": countGap, "restart": countRestart, "garbled": countGarbled, "lost": countLost} {
			say(m.stream, prometheus.CounterValue, w.feed.counts[i], name, what)
		}
		for o, n := range f.index.Claimed(w.id) {
			say(m.claims, prometheus.CounterValue, float64(n), name, pick.Outcome(o).String())
		}
		say(m.exact, prometheus.GaugeValue, float64(w.modeIndex()), name)
		if !w.feed.heard.IsZero() {
			say(m.age, prometheus.GaugeValue, max(0, now.Sub(w.feed.heard).Seconds()), name)
		}
		known, _, forgotten := f.index.Mirrored(w.id)
		say(m.known, prometheus.GaugeValue, float64(known), name)
		say(m.forgotten, prometheus.CounterValue, float64(forgotten), name)
	}
}
