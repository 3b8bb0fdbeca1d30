package engine

import (
	"context"
	"slices"
	"time"
)

// sglang reads SGLang. Its metrics need --enable-metrics. Gauges come from several processes, of which the most recent
// wins: what a rank last said stays on the page while it is idle, for up to half a minute. The ranks of one
// tensor-parallel engine (tp_rank, pp_rank, moe_ep_rank) say the same thing several times; those of data parallelism
// (dp_rank) are parts. token_usage is that of the fullest pool. With priorities the total stands under priority="" and
// its breakdown beside it.
type sglang struct{ server }

func (*sglang) Name() string { return "sglang" }

// busyAfter is how long /health may take. It generates a token, which waits behind a long prefill: a worker that does
// not get round to it and still answers is busy, not sick; token progress tells when it is stuck.
const busyAfter = time.Second

func (g *sglang) Health(ctx context.Context) error {
	probe, cancel := context.WithTimeout(ctx, busyAfter)
	defer cancel()
	err := g.ok(probe, "/health")
	if err == nil || ctx.Err() != nil || probe.Err() == nil {
		return err
	}
	return g.ok(ctx, "/v1/models")
}

// Models asks /v1/models. An adapter is asked for as base:adapter, because its bare name would get the base model.
func (g *sglang) Models(ctx context.Context) ([]Model, error) {
	out, err := g.list(ctx)
	for i := range out {
		if m := &out[i]; m.Parent != "" {
			m.ID = m.Parent + ":" + m.ID
		}
	}
	return slices.DeleteFunc(out, func(m Model) bool { return !named(m.ID) }), err
}

func (g *sglang) Metrics(ctx context.Context, last Reading) (Reading, error) {
	next, err := g.scrape(ctx, g.metricsAt("/metrics"), last, parseSGLang)
	return orSilent(next, last, err)
}

// orSilent takes a worker that has no metrics page for one that says nothing of its load.
func orSilent(next, last Reading, err error) (Reading, error) {
	if !missing(err) {
		return next, err
	}
	last.At = time.Now()
	return last, nil
}

// Load takes an adapter in.
func (g *sglang) Load(ctx context.Context, s Source) error {
	body := map[string]string{"lora_name": bare(s.ID), "lora_path": s.Path}
	return unless(g.client.command(ctx, g.at("/load_lora_adapter"), body), "already")
}

// Unload lets an adapter go.
func (g *sglang) Unload(ctx context.Context, id string) error {
	body := map[string]string{"lora_name": bare(id)}
	return unless(g.client.command(ctx, g.at("/unload_lora_adapter"), body), "not found", "not loaded")
}

// Sleep gives weights and KV cache back. The engine must run with --enable-memory-saver.
func (g *sglang) Sleep(ctx context.Context) error {
	return g.client.command(ctx, g.at("/release_memory_occupation"), struct{}{})
}

// Wake takes them again.
func (g *sglang) Wake(ctx context.Context) error {
	return g.client.command(ctx, g.at("/resume_memory_occupation"), struct{}{})
}

// bare is an adapter's own name in base:adapter.
func bare(id string) string {
	for i := len(id) - 1; i >= 0; i-- {
		if id[i] == ':' {
			return id[i+1:]
		}
	}
	return id
}

// parseSGLang reads SGLang's metrics, as leniently as parseVLLM.
func parseSGLang(text []byte, last Reading, now time.Time) (Reading, bool) {
	s := sheet{copies: []string{"tp_rank", "pp_rank", "moe_ep_rank", "pid"}}
	for l := range lines(text, "sglang:") {
		if string(l.name) == "sglang:cache_config_info" {
			s.geometry(l, "num_pages", "page_size")
			continue
		}
		q := sglangNames(l.name)
		if q == qNone || breakdown(l) {
			continue
		}
		s.add(q, l)
	}
	if s.taken == 0 {
		return last, false
	}
	if s.said(qKVAbsolute) {
		s.tallies[qKV] = s.tallies[qKVAbsolute]
	}
	s.instead(qQueries, qPrompt) // every prompt token is looked up
	return s.onto(last, now), true
}

// breakdown says that a series is a part of another that stands on the page too.
func breakdown(l series) bool {
	labels, _, _ := l.read()
	return len(label(labels, "priority")) > 0
}

func sglangNames(name []byte) quantity {
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
