package gpu

import (
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
)

// finishReason is how a request ended, in vLLM's terms.
type finishReason uint8

const (
	finishStop finishReason = iota
	finishLength
	finishAbort
	finishError
	finishReasonCount
)

func (o finishReason) String() string { return [...]string{"stop", "length", "abort", "error"}[o] }

// workerMetrics are the server's measurements in addition to the engine's counters.
type workerMetrics struct {
	endedRequests                          [finishReasonCount]atomic.Uint64
	ttft, itl, e2e, queue, prefill, decode *histogram
}

func newWorkerMetrics() *workerMetrics {
	long := []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	return &workerMetrics{
		ttft: newHistogram("time_to_first_token_seconds", "Time to first token in seconds.",
			0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560),
		itl: newHistogram("inter_token_latency_seconds", "Inter-token latency in seconds.",
			0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80),
		e2e:     newHistogram("e2e_request_latency_seconds", "End to end request latency in seconds.", long...),
		queue:   newHistogram("request_queue_time_seconds", "Time spent waiting in seconds.", long...),
		prefill: newHistogram("request_prefill_time_seconds", "Time spent in prefill in seconds.", long...),
		decode:  newHistogram("request_decode_time_seconds", "Time spent in decode in seconds.", long...),
	}
}

func (m *workerMetrics) countFinished(o finishReason) { m.endedRequests[o].Add(1) }

func (s *Server) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	g, c := s.driver.engineStats()
	p := &metricsPage{labels: `engine="0",model_name=` + strconv.Quote(s.cfg.ServedModel), buf: make([]byte, 0, 16<<10)}
	p.addSingle("gauge", "num_requests_running", "Number of requests in model execution batches.", float64(g.Running))
	p.addSingle("gauge", "num_requests_waiting", "Number of requests waiting to be processed.", float64(g.Waiting))
	p.addSingle("gauge", "kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", g.KVUsage)
	p.addFamily("gauge", "cache_config_info", "Information of the LLMEngine CacheConfig")
	p.buf = fmt.Appendf(p.buf, "vllm:cache_config_info{block_size=\"%d\",cache_dtype=\"auto\",enable_prefix_caching=\"True\",engine=\"0\",gpu_memory_utilization=\"0.9\",num_gpu_blocks=\"%d\"} 1\n", BlockTokens, g.KVBlocks)
	p.addSingle("counter", "prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens.", float64(c.PrefixQueries))
	p.addSingle("counter", "prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens.", float64(c.PrefixHits))
	p.addSingle("counter", "num_preemptions_total", "Cumulative number of preemption from the engine.", float64(c.Preemptions))
	p.addSingle("counter", "prompt_tokens_total", "Number of prefill tokens processed.", float64(c.PromptTokens))
	p.addSingle("counter", "generation_tokens_total", "Number of generation tokens processed.", float64(c.GeneratedTokens))
	p.addFamily("counter", "request_success_total", "Count of successfully processed requests.")
	m := s.metrics
	for o := range finishReasonCount {
		p.addSeries("request_success_total", "", "finished_reason", o.String(), float64(m.endedRequests[o].Load()))
	}
	s.adapters.writeMetrics(p, s.cfg.MaxAdapters)
	for _, h := range []*histogram{m.ttft, m.itl, m.e2e, m.queue, m.prefill, m.decode} {
		p.addHistogram(h)
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Write(p.buf)
}
