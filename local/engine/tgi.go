package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"
)

// tgi reads Text Generation Inference. It has no gauge of its KV cache; the batch's budget of tokens, which it does
// reserve, stands in for it against the total that /info tells. An adapter is chosen by a field of the request
// (adapter_id) and is no model of its own.
type tgi struct {
	server
	kv atomic.Int64 // max_batch_total_tokens
}

func (*tgi) Name() string { return "tgi" }

func (e *tgi) Health(ctx context.Context) error { return e.ok(ctx, "/health") }

// Models asks /info for the one model and its limits, and /v1/models for the name that requests use.
func (e *tgi) Models(ctx context.Context) ([]Model, error) {
	var info tgiInfo
	if err := e.client.page(ctx, e.at("/info"), maxSmall, func(b []byte) error { return info.parse(b) }); err != nil {
		return nil, err
	}
	e.kv.Store(context64(info.MaxBatchTotal))
	out, err := e.list(ctx)
	if missing(err) || err == nil && len(out) == 0 {
		out, err = []Model{{ID: info.ModelID}}, nil
	}
	for i := range out {
		out[i].MaxContext = context64(info.MaxTotal)
	}
	return out, err
}

type tgiInfo struct {
	ModelID       string  `json:"model_id"`
	MaxTotal      float64 `json:"max_total_tokens"`
	MaxBatchTotal float64 `json:"max_batch_total_tokens"` // null when the engine has not measured it
}

func (i *tgiInfo) parse(page []byte) error {
	if err := json.Unmarshal(page, i); err != nil {
		return fmt.Errorf("the server's description: %w", err)
	}
	if !named(i.ModelID) {
		return ErrForeign
	}
	return nil
}

func (e *tgi) Metrics(ctx context.Context, last Reading) (Reading, error) {
	return e.scrape(ctx, e.metricsAt("/metrics"), last, func(text []byte, last Reading, now time.Time) (Reading, bool) {
		return parseTGI(text, e.kv.Load(), last, now)
	})
}

// parseTGI reads TGI's metrics, as leniently as parseVLLM; kvTotal is its whole budget of tokens, 0 when not known.
func parseTGI(text []byte, kvTotal int64, last Reading, now time.Time) (Reading, bool) {
	var s sheet
	for l := range lines(text, "tgi_") {
		if q := tgiNames(l.name); q != qNone {
			s.add(q, l)
		}
	}
	if s.taken == 0 {
		return last, false
	}
	held := s.tallies[qBlocks]
	s.tallies[qBlocks] = nil
	r := s.onto(last, now)
	if kvTotal > 0 {
		r.KVTotal = kvTotal
		if len(held) > 0 {
			r.KVUsage, r.KVSaid = min(held.sum()/float64(kvTotal), 1), true
		}
	}
	return r, true
}

func tgiNames(name []byte) quantity {
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
