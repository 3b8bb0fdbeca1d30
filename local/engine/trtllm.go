package engine

import (
	"context"
	"time"
)

// trtllm reads TensorRT-LLM's own server, trtllm-serve. Its Prometheus page is not at /metrics, where it keeps a list of
// iterations that reading empties, but at /prometheus/metrics, and only when the engine is configured to keep
// performance metrics. Under attention data parallelism only the first rank reports.
type trtllm struct{ server }

func (*trtllm) Name() string { return "trtllm" }

func (e *trtllm) Health(ctx context.Context) error { return e.ok(ctx, "/health") }

func (e *trtllm) Models(ctx context.Context) ([]Model, error) { return e.list(ctx) }

func (e *trtllm) Metrics(ctx context.Context, last Reading) (Reading, error) {
	next, err := e.scrape(ctx, e.metricsAt("/prometheus/metrics"), last, parseTRTLLM)
	return orSilent(next, last, err)
}

// parseTRTLLM reads trtllm-serve's metrics, as leniently as parseVLLM.
func parseTRTLLM(text []byte, last Reading, now time.Time) (Reading, bool) {
	s := sheet{copies: []string{"pid"}}
	for l := range lines(text, "trtllm_") {
		if q := trtllmNames(l.name); q != qNone {
			s.add(q, l)
		}
	}
	if s.taken == 0 {
		return last, false
	}
	s.reuse()
	return s.onto(last, now), true
}

// reuse turns blocks found and missed into tokens.
func (s *sheet) reuse() {
	if !s.said(qBlockSize) || !s.said(qOldHits) || !s.said(qOldQueries) {
		s.tallies[qOldHits], s.tallies[qOldQueries] = nil, nil
		return
	}
	size := s.tallies[qBlockSize].mean()
	hits, missed := s.tallies[qOldHits].sum()*size, s.tallies[qOldQueries].sum()*size
	s.tallies[qHits], s.tallies[qQueries] = tally{{value: hits}}, tally{{value: hits + missed}}
}

func trtllmNames(name []byte) quantity {
	switch string(name) {
	case "trtllm_num_requests_running":
		return qRunning
	case "trtllm_num_requests_waiting":
		return qWaiting
	case "trtllm_max_num_active_requests":
		return qSlots
	case "trtllm_kv_cache_utilization":
		return qUsage
	case "trtllm_kv_cache_max_blocks":
		return qBlocks
	case "trtllm_kv_cache_tokens_per_block":
		return qBlockSize
	case "trtllm_kv_cache_reused_blocks_total":
		return qOldHits
	case "trtllm_kv_cache_missed_blocks_total":
		return qOldQueries
	case "trtllm_request_success_total":
		return qServed
	}
	return qNone
}
