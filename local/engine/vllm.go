package engine

import (
	"context"
	"errors"
	"strings"
	"time"
)

// vllm reads vLLM and the engines that imitate its pages. Its labels are model_name and engine: with data parallelism
// there is one series for each engine, and all of them count. Names have changed and both are read. KV usage counts
// blocks of live sequences only; cached blocks are free.
type vllm struct{ server }

func (*vllm) Name() string { return "vllm" }

// Health asks /health, which is 503 once the engine's core has died.
func (v *vllm) Health(ctx context.Context) error { return v.ok(ctx, "/health") }

// Models asks /v1/models; adapters come with their parent.
func (v *vllm) Models(ctx context.Context) ([]Model, error) { return v.list(ctx) }

func (v *vllm) Metrics(ctx context.Context, last Reading) (Reading, error) {
	return v.scrape(ctx, v.metricsAt("/metrics"), last, parseVLLM)
}

// Load takes an adapter in. The engine must run with VLLM_ALLOW_RUNTIME_LORA_UPDATING.
func (v *vllm) Load(ctx context.Context, s Source) error {
	body := map[string]string{"lora_name": s.ID, "lora_path": s.Path}
	return unless(v.client.command(ctx, v.at("/v1/load_lora_adapter"), body), "already")
}

// Unload lets an adapter go.
func (v *vllm) Unload(ctx context.Context, id string) error {
	body := map[string]string{"lora_name": id}
	return unless(v.client.command(ctx, v.at("/v1/unload_lora_adapter"), body), "cannot be found", "not found")
}

// Sleep moves the weights to the host's memory and drops the KV cache (level 1). The engine must run with
// --enable-sleep-mode and VLLM_SERVER_DEV_MODE.
func (v *vllm) Sleep(ctx context.Context) error {
	return v.client.command(ctx, v.at("/sleep?level=1"), struct{}{})
}

// Wake brings them back, in seconds.
func (v *vllm) Wake(ctx context.Context) error {
	return v.client.command(ctx, v.at("/wake_up"), struct{}{})
}

// unless forgives a refusal that says that what is asked for is so already.
func unless(err error, words ...string) error {
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

// parseVLLM reads vLLM's metrics. It is lenient: lines that it does not know are passed over, and what no line says
// keeps its value from last.
func parseVLLM(text []byte, last Reading, now time.Time) (Reading, bool) {
	var s sheet
	for l := range lines(text, "vllm:") {
		switch string(l.name) {
		case "vllm:cache_config_info":
			s.geometry(l, "num_gpu_blocks", "block_size")
		case "vllm:engine_sleep_state":
			// One series for each state; another than "awake" at one means sleep.
			if labels, _, _ := l.read(); string(label(labels, "sleep_state")) != "awake" {
				s.add(qAsleep, l)
			}
		case "vllm:lora_requests_info":
			s.lora(l)
		default:
			if q := vllmNames(l.name); q != qNone {
				s.add(q, l)
			}
		}
	}
	if s.taken == 0 {
		return last, false
	}
	return s.onto(last, now), true
}

func vllmNames(name []byte) quantity {
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

// geometry reads the KV cache's size, which vLLM and SGLang tell in labels. Before the cache is laid out they say None.
func (s *sheet) geometry(l series, blocks, size string) {
	labels, _, ok := l.read()
	n, ok1 := number(labels, blocks)
	b, ok2 := number(labels, size)
	if !ok || !ok1 || !ok2 || n < 1 || b < 1 {
		return
	}
	// The labels are the value: only those that name an engine tell parts apart.
	s.put(qKV, hash(hash(fnvBasis, label(labels, "engine")), label(labels, "dp_rank")), n*b)
}

func (s *sheet) lora(l series) {
	labels, at, ok := l.read()
	if !ok || !(at >= 0 && at <= maxTokens) {
		s.ignored++
		return
	}
	s.taken++
	s.adapters.put(labels, at)
	if n, ok := number(labels, "max_lora"); ok && n >= 1 && n <= maxSeqs && !s.said(qMaxAdapters) {
		s.put(qMaxAdapters, 0, n)
	}
}
