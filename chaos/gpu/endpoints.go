package gpu

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// encodeError is an error in vLLM's format.
func encodeError(status int, message string) []byte {
	kind := "BadRequestError"
	switch {
	case status == http.StatusNotFound:
		kind = "NotFoundError"
	case status >= 500:
		kind = "InternalServerError"
	}
	b, _ := json.Marshal(map[string]any{ // strings and numbers always encode
		"error": map[string]any{"message": message, "type": kind, "param": nil, "code": status},
	})
	return b
}

// writeError answers with an error and does not count it.
func writeError(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(encodeError(status, message))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

// modelEntry is one served model.
type modelEntry struct {
	ID          string  `json:"id"`
	Object      string  `json:"object"`
	Created     int64   `json:"created"`
	OwnedBy     string  `json:"owned_by"`
	Root        string  `json:"root"`
	Parent      *string `json:"parent"`
	MaxModelLen int     `json:"max_model_len"`
}

func (s *Server) serveModels(w http.ResponseWriter, _ *http.Request) {
	entry := modelEntry{
		ID: s.cfg.ServedModel, Object: "model", Created: s.started.Unix(), OwnedBy: "vllm",
		Root: s.cfg.Model, MaxModelLen: s.driver.engineLimits().MaxModelLen,
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": append([]modelEntry{entry}, s.adapterEntries()...)})
}

func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	switch c := s.chaos.loadCurrent(); {
	case c.Mode == ModeFail:
		w.WriteHeader(c.Status)
	case c.Mode == ModeOOM || s.chaos.memoryGone.Load():
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		w.WriteHeader(http.StatusOK)
	}
}

func (s *Server) serveVersion(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"version": "0.15.1"})
}

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
