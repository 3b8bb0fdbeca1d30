package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

// triton reads Triton (KServe v2) and what its TensorRT-LLM backend adds. Metrics are on a port of their own, 8002
// unless the worker's metrics page is configured. Requests are passed on as they come, so a worker must speak the
// OpenAI paths (Triton's OpenAI frontend) or the KServe ones that are asked of it.
type triton struct {
	server
	elsewhere bool        // the metrics page is not the configured one and may not be there
	frontend  atomic.Bool // the worker's port is that of the OpenAI frontend, which serves its own pages
}

const tritonMetricsPort = "8002"

func newTriton(s server) *triton {
	t := &triton{server: s}
	if u, err := url.Parse(s.base); err == nil && s.metrics == "" {
		t.elsewhere = true
		t.metrics = "http://" + net.JoinHostPort(u.Hostname(), tritonMetricsPort) + "/metrics"
	}
	return t
}

func (*triton) Name() string { return "triton" }

// Health asks whether the server lives. /v2/health/ready is no when any one model has failed to load, and each model's
// own state is told by Models.
func (t *triton) Health(ctx context.Context) error {
	return t.aliveAt(ctx, "/v2/health/live", "/health/ready")
}

// Models asks the repository for all there is; what is not loaded is refused until Load. A model is ready when any of
// its versions is.
func (t *triton) Models(ctx context.Context) (out []Model, err error) {
	err = t.client.do(ctx, http.MethodPost, t.at("/v2/repository/index"), []byte("{}"), maxModels, func(_ http.Header, b []byte) (err error) {
		out, err = parseRepository(b)
		return err
	})
	t.frontend.Store(missing(err))
	if missing(err) {
		return t.list(ctx)
	}
	return out, err
}

// parseRepository reads Triton's repository index.
func parseRepository(page []byte) ([]Model, error) {
	var index []struct {
		Name  string `json:"name"`
		State string `json:"state"`
	}
	if err := json.Unmarshal(page, &index); err != nil {
		return nil, fmt.Errorf("the repository index: %w", err)
	}
	var out []Model
	at := map[string]int{}
	for _, e := range index {
		if !named(e.Name) {
			continue
		}
		i, seen := at[e.Name]
		if !seen {
			if len(out) == maxNamed {
				continue
			}
			i = len(out)
			at[e.Name] = i
			out = append(out, Model{ID: e.Name, State: Unloaded})
		}
		if e.State == "READY" {
			out[i].State = Ready
		}
	}
	return out, nil
}

func (t *triton) Metrics(ctx context.Context, last Reading) (Reading, error) {
	address := t.metrics
	if t.elsewhere && t.frontend.Load() {
		address = t.at("/metrics")
	}
	next, err := t.scrape(ctx, address, last, parseTriton)
	return orSilent(next, last, err)
}

// Load loads a model from the repository. The server must run with --model-control-mode=explicit.
func (t *triton) Load(ctx context.Context, s Source) error {
	return t.client.command(ctx, t.at("/v2/repository/models/"+url.PathEscape(s.ID)+"/load"), struct{}{})
}

// Unload takes a model out of memory.
func (t *triton) Unload(ctx context.Context, id string) error {
	return t.client.command(ctx, t.at("/v2/repository/models/"+url.PathEscape(id)+"/unload"), struct{}{})
}

// parseTriton reads Triton's metrics, as leniently as parseVLLM. Without the TensorRT-LLM backend only what waits is known.
func parseTriton(text []byte, last Reading, now time.Time) (Reading, bool) {
	s := sheet{kinds: []string{"request_type", "kv_cache_block_type"}}
	for l := range lines(text, "nv_") {
		labels, _, _ := l.read()
		if q := tritonNames(l.name, labels); q != qNone {
			s.add(q, l)
		}
	}
	if s.taken == 0 {
		return last, false
	}
	s.instead(qWaiting, qOldWaiting)
	return s.onto(last, now), true
}

func tritonNames(name, labels []byte) quantity {
	switch string(name) {
	case "nv_trt_llm_request_metrics":
		switch string(label(labels, "request_type")) {
		case "scheduled":
			return qRunning
		case "waiting":
			return qWaiting
		case "max":
			return qSlots
		}
	case "nv_trt_llm_kv_cache_block_metrics":
		switch string(label(labels, "kv_cache_block_type")) {
		case "fraction":
			return qUsage
		case "max":
			return qBlocks
		case "tokens_per":
			return qBlockSize
		}
	case "nv_inference_pending_request_count":
		return qOldWaiting
	case "nv_inference_request_success":
		return qServed
	}
	return qNone
}
