package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"
)

// tgi reads Text Generation Inference. It has no gauge of its KV cache; its reserved batch token budget is used
// instead, relative to the total from /info. An adapter is chosen by a field of the request (adapter_id) and is no
// model of its own.
type tgi struct {
	workerServer
	kvBudget atomic.Int64 // max_batch_total_tokens
}

func (*tgi) Name() string { return "tgi" }

func (e *tgi) CheckHealth(ctx context.Context) error { return e.checkPage(ctx, "/health") }

// ListModels gets /info for the one model and its limits, and /v1/models for the name that requests use.
func (e *tgi) ListModels(ctx context.Context) ([]WorkerModel, error) {
	var info tgiInfo
	if err := e.client.getPage(ctx, e.urlFor("/info"), maxSmallPageBytes, func(b []byte) error { return info.parseInfo(b) }); err != nil {
		return nil, err
	}
	e.kvBudget.Store(validContext(info.MaxBatchTotal))
	out, err := e.fetchModels(ctx)
	if isMissingPage(err) || err == nil && len(out) == 0 {
		out, err = []WorkerModel{{ID: info.ModelID}}, nil
	}
	for i := range out {
		out[i].MaxContext = validContext(info.MaxTotal)
	}
	return out, err
}

type tgiInfo struct {
	ModelID       string  `json:"model_id"`
	MaxTotal      float64 `json:"max_total_tokens"`
	MaxBatchTotal float64 `json:"max_batch_total_tokens"` // null when the engine has not measured it
}

func (i *tgiInfo) parseInfo(page []byte) error {
	if err := json.Unmarshal(page, i); err != nil {
		return fmt.Errorf("the server's description: %w", err)
	}
	if !isValidName(i.ModelID) {
		return ErrUnknownPage
	}
	return nil
}

func (e *tgi) ReadMetrics(ctx context.Context, last Reading) (Reading, error) {
	return e.scrapePage(ctx, e.metricsURLOr("/metrics"), last, func(text []byte, last Reading, now time.Time) (Reading, bool) {
		return parseTGI(text, e.kvBudget.Load(), last, now)
	})
}

// parseTGI parses TGI's metrics, as leniently as parseVLLM; kvTotal is its total token budget, 0 when unknown.
func parseTGI(text []byte, kvTotal int64, last Reading, now time.Time) (Reading, bool) {
	var s metricSheet
	for l := range scanSeries(text, "tgi_") {
		if q := tgiQuantity(l.name); q != qNone {
			s.addSeries(q, l)
		}
	}
	if s.accepted == 0 {
		return last, false
	}
	held := s.tallies[qBlocks]
	s.tallies[qBlocks] = nil
	r := s.applyTo(last, now)
	if kvTotal > 0 {
		r.KVTotal = kvTotal
		if len(held) > 0 {
			r.KVUsage, r.KVReported = min(held.total()/float64(kvTotal), 1), true
		}
	}
	return r, true
}

func tgiQuantity(name []byte) quantity {
	switch string(name) {
	case "tgi_batch_current_size":
		return qRunning
	case "tgi_queue_size":
		return qWaiting
	case "tgi_batch_current_max_tokens":
		return qBlocks
	case "tgi_request_input_length_sum":
		return qPrompt
	case "tgi_request_generated_tokens_sum":
		return qOutput
	case "tgi_request_success", "tgi_request_success_total":
		return qServed
	}
	return qNone
}
