package engine

import (
	"context"
	"slices"
	"time"
)

// sglang reads SGLang. Its metrics need --enable-metrics. Gauges come from several processes and the most recent
// value wins: the last value of a rank stays on the page while it is idle, for up to half a minute. The ranks of one
// tensor-parallel engine (tp_rank, pp_rank, moe_ep_rank) repeat the same value; those of data parallelism (dp_rank)
// are parts. token_usage is that of the fullest pool. With priorities, the series with priority="" is the total and
// the others its breakdown.
type sglang struct{ workerServer }

func (*sglang) Name() string { return "sglang" }

// healthTimeout bounds a call to /health. It generates a token, which waits behind a long prefill: a worker that is
// too slow for it but still answers is busy, not unhealthy; a stuck one is detected by its token progress.
const healthTimeout = time.Second

func (g *sglang) CheckHealth(ctx context.Context) error {
	probe, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	err := g.checkPage(probe, "/health")
	if err == nil || ctx.Err() != nil || probe.Err() == nil {
		return err
	}
	return g.checkPage(ctx, "/v1/models")
}

// ListModels gets /v1/models. An adapter is requested as base:adapter, because its bare name would select the base
// model.
func (g *sglang) ListModels(ctx context.Context) ([]WorkerModel, error) {
	out, err := g.fetchModels(ctx)
	for i := range out {
		if m := &out[i]; m.Parent != "" {
			m.ID = m.Parent + ":" + m.ID
		}
	}
	return slices.DeleteFunc(out, func(m WorkerModel) bool { return !isValidName(m.ID) }), err
}

func (g *sglang) ReadMetrics(ctx context.Context, last Reading) (Reading, error) {
	next, err := g.scrapePage(ctx, g.metricsURLOr("/metrics"), last, parseSGLang)
	return orLastReading(next, last, err)
}

// orLastReading treats a worker without a metrics page as one that does not report its load.
func orLastReading(next, last Reading, err error) (Reading, error) {
	if !isMissingPage(err) {
		return next, err
	}
	last.ReadAt = time.Now()
	return last, nil
}

// LoadModel loads an adapter.
func (g *sglang) LoadModel(ctx context.Context, s ModelSource) error {
	body := map[string]string{"lora_name": bareAdapterName(s.ID), "lora_path": s.Path}
	return ignoreRefusal(g.client.postCommand(ctx, g.urlFor("/load_lora_adapter"), body), "already")
}

// UnloadModel unloads an adapter.
func (g *sglang) UnloadModel(ctx context.Context, id string) error {
	body := map[string]string{"lora_name": bareAdapterName(id)}
	return ignoreRefusal(g.client.postCommand(ctx, g.urlFor("/unload_lora_adapter"), body), "not found", "not loaded")
}

// ReleaseMemory releases weights and KV cache. The engine must run with --enable-memory-saver.
func (g *sglang) ReleaseMemory(ctx context.Context) error {
	return g.client.postCommand(ctx, g.urlFor("/release_memory_occupation"), struct{}{})
}

// ReclaimMemory restores them.
func (g *sglang) ReclaimMemory(ctx context.Context) error {
	return g.client.postCommand(ctx, g.urlFor("/resume_memory_occupation"), struct{}{})
}

// bareAdapterName is an adapter's own name in base:adapter.
func bareAdapterName(id string) string {
	for i := len(id) - 1; i >= 0; i-- {
		if id[i] == ':' {
			return id[i+1:]
		}
	}
	return id
}

// parseSGLang parses SGLang's metrics, as leniently as parseVLLM.
func parseSGLang(text []byte, last Reading, now time.Time) (Reading, bool) {
	s := metricSheet{copyLabels: []string{"tp_rank", "pp_rank", "moe_ep_rank", "pid"}}
	for l := range scanSeries(text, "sglang:") {
		if string(l.name) == "sglang:cache_config_info" {
			s.addCacheSize(l, "num_pages", "page_size")
			continue
		}
		q := sglangQuantity(l.name)
		if q == qNone || isBreakdown(l) {
			continue
		}
		s.addSeries(q, l)
	}
	if s.accepted == 0 {
		return last, false
	}
	if s.hasQuantity(qKVAbsolute) {
		s.tallies[qKV] = s.tallies[qKVAbsolute]
	}
	s.useFallback(qQueries, qPrompt) // every prompt token is looked up
	return s.applyTo(last, now), true
}

// isBreakdown reports whether a series is a part of another series on the page.
func isBreakdown(l promSeries) bool {
	labels, _, _ := l.parseSeries()
	return len(labelValue(labels, "priority")) > 0
}

func sglangQuantity(name []byte) quantity {
	switch string(name) {
	case "sglang:num_running_reqs":
		return qRunning
	case "sglang:num_queue_reqs":
		return qWaiting
	case "sglang:token_usage":
		return qUsage
	case "sglang:max_total_num_tokens":
		return qKVAbsolute
	case "sglang:prompt_tokens_total":
		return qPrompt
	case "sglang:generation_tokens_total":
		return qOutput
	case "sglang:cached_tokens_total":
		return qHits
	case "sglang:num_requests_total":
		return qServed
	case "sglang:num_retracted_requests_total":
		return qPreemptions
	case "sglang:lora_pool_slots_total":
		return qMaxAdapters
	}
	return qNone
}
