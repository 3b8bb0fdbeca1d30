package engine

import (
	"context"
	"errors"
	"strings"
	"time"
)

// vllm reads vLLM and compatible engines. Its labels are model_name and engine: with data parallelism there is one
// series for each engine, and all of them count. Some names have changed; both forms are read. KV usage counts blocks
// of live sequences only; cached blocks are free.
type vllm struct{ workerServer }

func (*vllm) Name() string { return "vllm" }

// CheckHealth gets /health, which is 503 once the engine's core has died.
func (v *vllm) CheckHealth(ctx context.Context) error { return v.checkPage(ctx, "/health") }

// ListModels gets /v1/models; adapters are listed with their parent.
func (v *vllm) ListModels(ctx context.Context) ([]WorkerModel, error) { return v.fetchModels(ctx) }

func (v *vllm) ReadMetrics(ctx context.Context, last Reading) (Reading, error) {
	return v.scrapePage(ctx, v.metricsURLOr("/metrics"), last, parseVLLM)
}

// LoadModel loads an adapter. The engine must run with VLLM_ALLOW_RUNTIME_LORA_UPDATING.
func (v *vllm) LoadModel(ctx context.Context, s ModelSource) error {
	body := map[string]string{"lora_name": s.ID, "lora_path": s.Path}
	return ignoreRefusal(v.client.postCommand(ctx, v.urlFor("/v1/load_lora_adapter"), body), "already")
}

// UnloadModel unloads an adapter.
func (v *vllm) UnloadModel(ctx context.Context, id string) error {
	body := map[string]string{"lora_name": id}
	return ignoreRefusal(v.client.postCommand(ctx, v.urlFor("/v1/unload_lora_adapter"), body), "cannot be found", "not found")
}

// ReleaseMemory moves the weights to host memory and drops the KV cache (level 1). The engine must run with
// --enable-sleep-mode and VLLM_SERVER_DEV_MODE.
func (v *vllm) ReleaseMemory(ctx context.Context) error {
	return v.client.postCommand(ctx, v.urlFor("/sleep?level=1"), struct{}{})
}

// ReclaimMemory restores them, within seconds.
func (v *vllm) ReclaimMemory(ctx context.Context) error {
	return v.client.postCommand(ctx, v.urlFor("/wake_up"), struct{}{})
}

// ignoreRefusal ignores a refusal whose text shows that the requested state is already in place.
func ignoreRefusal(err error, words ...string) error {
	var s *StatusError
	if !errors.As(err, &s) || s.Status >= 500 {
		return err
	}
	for _, w := range words {
		if strings.Contains(s.Body, w) {
			return nil
		}
	}
	return err
}

// parseVLLM parses vLLM's metrics. It is lenient: unknown lines are skipped, and a value without a line stays as in
// last.
func parseVLLM(text []byte, last Reading, now time.Time) (Reading, bool) {
	var s metricSheet
	for l := range scanSeries(text, "vllm:") {
		switch string(l.name) {
		case "vllm:cache_config_info":
			s.addCacheSize(l, "num_gpu_blocks", "block_size")
		case "vllm:engine_sleep_state":
			// One series for each state; a value of 1 for one other than "awake" means sleep.
			if labels, _, _ := l.parseSeries(); string(labelValue(labels, "sleep_state")) != "awake" {
				s.addSeries(qAsleep, l)
			}
		case "vllm:lora_requests_info":
			s.addAdapters(l)
		default:
			if q := vllmQuantity(l.name); q != qNone {
				s.addSeries(q, l)
			}
		}
	}
	if s.accepted == 0 {
		return last, false
	}
	return s.applyTo(last, now), true
}

func vllmQuantity(name []byte) quantity {
	switch string(name) {
	case "vllm:num_requests_running":
		return qRunning
	case "vllm:num_requests_waiting":
		return qWaiting
	case "vllm:kv_cache_usage_perc":
		return qUsage
	case "vllm:gpu_cache_usage_perc":
		return qOldUsage
	case "vllm:prompt_tokens_total":
		return qPrompt
	case "vllm:generation_tokens_total":
		return qOutput
	case "vllm:prefix_cache_queries_total":
		return qQueries
	case "vllm:prefix_cache_hits_total":
		return qHits
	case "vllm:gpu_prefix_cache_queries_total":
		return qOldQueries
	case "vllm:gpu_prefix_cache_hits_total":
		return qOldHits
	case "vllm:num_preemptions_total":
		return qPreemptions
	case "vllm:request_success_total":
		return qServed
	}
	return qNone
}

// addCacheSize reads the size of the KV cache, which vLLM and SGLang report in labels. They are None before the cache
// is allocated.
func (s *metricSheet) addCacheSize(l promSeries, blocks, size string) {
	labels, _, ok := l.parseSeries()
	n, ok1 := labelNumber(labels, blocks)
	b, ok2 := labelNumber(labels, size)
	if !ok || !ok1 || !ok2 || n < 1 || b < 1 {
		return
	}
	// The labels are the value: only those of the engine distinguish parts.
	s.addValue(qKV, hashFNV(hashFNV(fnvBasis, labelValue(labels, "engine")), labelValue(labels, "dp_rank")), n*b)
}

func (s *metricSheet) addAdapters(l promSeries) {
	labels, at, ok := l.parseSeries()
	if !ok || !(at >= 0 && at <= maxTokens) {
		s.ignored++
		return
	}
	s.accepted++
	s.adapters.addSeries(labels, at)
	if n, ok := labelNumber(labels, "max_lora"); ok && n >= 1 && n <= maxSeqs && !s.hasQuantity(qMaxAdapters) {
		s.addValue(qMaxAdapters, 0, n)
	}
}
