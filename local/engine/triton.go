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

// triton reads Triton (KServe v2) with its TensorRT-LLM backend. Metrics are on a separate port, 8002 unless the
// worker's metrics page is configured. Requests are forwarded unchanged, so a worker must serve the OpenAI paths
// (Triton's OpenAI frontend) or the KServe paths that clients use.
type triton struct {
	workerServer
	metricsGuessed bool        // the metrics page is the default one and may not exist
	openAIFrontend atomic.Bool // the worker's port is that of the OpenAI frontend, which serves its own pages
}

const tritonMetricsPort = "8002"

func newTriton(s workerServer) *triton {
	t := &triton{workerServer: s}
	if u, err := url.Parse(s.baseURL); err == nil && s.metricsURL == "" {
		t.metricsGuessed = true
		t.metricsURL = "http://" + net.JoinHostPort(u.Hostname(), tritonMetricsPort) + "/metrics"
	}
	return t
}

func (*triton) Name() string { return "triton" }

// CheckHealth gets /v2/health/live. /v2/health/ready fails when any one model has failed to load; ListModels reports
// each model's own state.
func (t *triton) CheckHealth(ctx context.Context) error {
	return t.checkAnyPage(ctx, "/v2/health/live", "/health/ready")
}

// ListModels lists the repository; a model that is not loaded is refused until LoadModel. A model is ready when any
// of its versions is.
func (t *triton) ListModels(ctx context.Context) (out []WorkerModel, err error) {
	err = t.client.sendQueued(ctx, http.MethodPost, t.urlFor("/v2/repository/index"), []byte("{}"), maxModelListBytes, func(_ http.Header, b []byte) (err error) {
		out, err = parseRepository(b)
		return err
	})
	t.openAIFrontend.Store(isMissingPage(err))
	if isMissingPage(err) {
		return t.fetchModels(ctx)
	}
	return out, err
}

// parseRepository parses Triton's repository index.
func parseRepository(page []byte) ([]WorkerModel, error) {
	var index []struct {
		Name  string `json:"name"`
		State string `json:"state"`
	}
	if err := json.Unmarshal(page, &index); err != nil {
		return nil, fmt.Errorf("the repository index: %w", err)
	}
	var out []WorkerModel
	at := map[string]int{}
	for _, e := range index {
		if !isValidName(e.Name) {
			continue
		}
		i, seen := at[e.Name]
		if !seen {
			if len(out) == maxNames {
				continue
			}
			i = len(out)
			at[e.Name] = i
			out = append(out, WorkerModel{ID: e.Name, State: ModelUnloaded})
		}
		if e.State == "READY" {
			out[i].State = ModelReady
		}
	}
	return out, nil
}

func (t *triton) ReadMetrics(ctx context.Context, last Reading) (Reading, error) {
	address := t.metricsURL
	if t.metricsGuessed && t.openAIFrontend.Load() {
		address = t.urlFor("/metrics")
	}
	next, err := t.scrapePage(ctx, address, last, parseTriton)
	return orLastReading(next, last, err)
}

// LoadModel loads a model from the repository. The server must run with --model-control-mode=explicit.
func (t *triton) LoadModel(ctx context.Context, s ModelSource) error {
	return t.client.postCommand(ctx, t.urlFor("/v2/repository/models/"+url.PathEscape(s.ID)+"/load"), struct{}{})
}

// UnloadModel unloads a model.
func (t *triton) UnloadModel(ctx context.Context, id string) error {
	return t.client.postCommand(ctx, t.urlFor("/v2/repository/models/"+url.PathEscape(id)+"/unload"), struct{}{})
}

// parseTriton parses Triton's metrics, as leniently as parseVLLM. Without the TensorRT-LLM backend only the waiting
// requests are known.
func parseTriton(text []byte, last Reading, now time.Time) (Reading, bool) {
	s := metricSheet{kindLabels: []string{"request_type", "kv_cache_block_type"}}
	for l := range scanSeries(text, "nv_") {
		labels, _, _ := l.parseSeries()
		if q := tritonQuantity(l.name, labels); q != qNone {
			s.addSeries(q, l)
		}
	}
	if s.accepted == 0 {
		return last, false
	}
	s.useFallback(qWaiting, qOldWaiting)
	return s.applyTo(last, now), true
}

func tritonQuantity(name, labels []byte) quantity {
	switch string(name) {
	case "nv_trt_llm_request_metrics":
		switch string(labelValue(labels, "request_type")) {
		case "scheduled":
			return qRunning
		case "waiting":
			return qWaiting
		case "max":
			return qSlots
		}
	case "nv_trt_llm_kv_cache_block_metrics":
		switch string(labelValue(labels, "kv_cache_block_type")) {
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
