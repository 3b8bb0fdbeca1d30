package engine

import (
	"context"
	"time"
)

// trtllm reads TensorRT-LLM's own server, trtllm-serve. Its Prometheus page is not at /metrics, which is a list of
// iterations that a read empties, but at /prometheus/metrics, and only if the engine is configured to collect
// performance metrics. Under attention data parallelism only the first rank reports.
type trtllm struct{ workerServer }

func (*trtllm) Name() string { return "trtllm" }

func (e *trtllm) CheckHealth(ctx context.Context) error { return e.checkPage(ctx, "/health") }

func (e *trtllm) ListModels(ctx context.Context) ([]WorkerModel, error) { return e.fetchModels(ctx) }

func (e *trtllm) ReadMetrics(ctx context.Context, last Reading) (Reading, error) {
	next, err := e.scrapePage(ctx, e.metricsURLOr("/prometheus/metrics"), last, parseTRTLLM)
	return orLastReading(next, last, err)
}

// parseTRTLLM parses trtllm-serve's metrics, as leniently as parseVLLM.
func parseTRTLLM(text []byte, last Reading, now time.Time) (Reading, bool) {
	s := metricSheet{copyLabels: []string{"pid"}}
	for l := range scanSeries(text, "trtllm_") {
		if q := trtllmQuantity(l.name); q != qNone {
			s.addSeries(q, l)
		}
	}
	if s.accepted == 0 {
		return last, false
	}
	s.computeReusedTokens()
	return s.applyTo(last, now), true
}

// computeReusedTokens converts block hits and misses into tokens.
func (s *metricSheet) computeReusedTokens() {
	if !s.hasQuantity(qBlockSize) || !s.hasQuantity(qOldHits) || !s.hasQuantity(qOldQueries) {
		s.tallies[qOldHits], s.tallies[qOldQueries] = nil, nil
		return
	}
	size := s.tallies[qBlockSize].mean()
	hits, missed := s.tallies[qOldHits].total()*size, s.tallies[qOldQueries].total()*size
	s.tallies[qHits], s.tallies[qQueries] = seriesTally{{value: hits}}, seriesTally{{value: hits + missed}}
}

func trtllmQuantity(name []byte) quantity {
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
