package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"
)

// llamacpp reads llama.cpp's server. Its metrics need --metrics; without them /slots shows the running requests, but
// not the waiting ones. Present builds have no gauge of KV usage: a worker is bounded by the number of slots, each
// with its own share of the context, and the in-flight ledger counts the rest. In router mode (no model given at its
// start) it loads models at their first request.
type llamacpp struct {
	workerServer
	slotCount      atomic.Int64 // sequences at once
	slotContext    atomic.Int64 // tokens of one slot
	metricsRetryAt atomic.Int64 // unix nanoseconds until which /metrics is not read again
}

// metricsRetryDelay is how long a missing metrics page is not requested again.
const metricsRetryDelay = time.Minute

func (*llamacpp) Name() string { return "llamacpp" }

// CheckHealth gets /health, which is 503 while the model is loading.
func (e *llamacpp) CheckHealth(ctx context.Context) error { return e.checkPage(ctx, "/health") }

// ListModels gets /v1/models, and /props for the slots of the one model.
func (e *llamacpp) ListModels(ctx context.Context) ([]WorkerModel, error) {
	cards, err := e.fetchModelList(ctx)
	if err != nil {
		return nil, err
	}
	out := toWorkerModels(cards)
	router := false
	for i, c := range cards {
		switch c.Status.Value {
		case "":
		case "loaded":
			router = true
		default:
			router = true
			out[i].State = ModelCold
		}
	}
	if router {
		return out, nil
	}
	err = e.client.getPage(ctx, e.urlFor("/props"), maxSmallPageBytes, e.storeProps)
	if isMissingPage(err) { // --no-slots and --props determine which of the two exists
		err = e.client.getPage(ctx, e.urlFor("/slots"), maxSmallPageBytes, e.storeSlotSizes)
	}
	if err != nil && !isMissingPage(err) {
		return nil, err
	}
	for i := range out {
		out[i].MaxContext = e.slotContext.Load()
	}
	return out, nil
}

func (e *llamacpp) storeProps(page []byte) error {
	slots, size, err := parseProps(page)
	if err == nil {
		e.slotCount.Store(slots)
		e.slotContext.Store(size)
	}
	return err
}

func (e *llamacpp) storeSlotSizes(page []byte) error {
	slots, size, err := parseSlotSizes(page)
	if err == nil && slots > 0 && size > 0 {
		e.slotCount.Store(slots)
		e.slotContext.Store(size)
	}
	return err
}

// parseSlotSizes parses llama.cpp's /slots: the number of slots and the context of the smallest, in tokens; 0 if
// unknown.
func parseSlotSizes(page []byte) (slots, size int64, err error) {
	var list []struct {
		Context float64 `json:"n_ctx"`
	}
	if err := json.Unmarshal(page, &list); err != nil {
		return 0, 0, fmt.Errorf("the server's slots: %w", err)
	}
	if len(list) == 0 || len(list) > maxSeqs {
		return 0, 0, nil
	}
	size = validContext(list[0].Context)
	for _, s := range list {
		size = min(size, validContext(s.Context))
	}
	return int64(len(list)), size, nil
}

// parseProps parses llama.cpp's /props: the number of slots and the tokens of each; 0 if unknown.
func parseProps(page []byte) (slots, size int64, err error) {
	var p struct {
		Slots    float64 `json:"total_slots"`
		Settings struct {
			Context float64 `json:"n_ctx"`
		} `json:"default_generation_settings"`
	}
	if err := json.Unmarshal(page, &p); err != nil {
		return 0, 0, fmt.Errorf("the server's properties: %w", err)
	}
	if p.Slots >= 1 && p.Slots <= maxSeqs {
		slots = int64(p.Slots)
	}
	return slots, validContext(p.Settings.Context), nil
}

func (e *llamacpp) ReadMetrics(ctx context.Context, last Reading) (Reading, error) {
	now := time.Now()
	if now.UnixNano() >= e.metricsRetryAt.Load() {
		next, err := e.scrapePage(ctx, e.metricsURLOr("/metrics"), last, parseLlamaCPP)
		if !isMissingPage(err) {
			return e.withSlotSizes(next), err
		}
		e.metricsRetryAt.Store(now.Add(metricsRetryDelay).UnixNano())
	}
	next, err := e.scrapePage(ctx, e.urlFor("/slots"), last, parseSlots)
	next, err = orLastReading(next, last, err)
	return e.withSlotSizes(next), err
}

// withSlotSizes adds the values of /props.
func (e *llamacpp) withSlotSizes(r Reading) Reading {
	if n, size := e.slotCount.Load(), e.slotContext.Load(); n > 0 {
		r.Slots = n
		r.KVTotal = n * size
	}
	return r
}

// LoadModel makes a server in router mode load a model.
func (e *llamacpp) LoadModel(ctx context.Context, s ModelSource) error {
	return ignoreRefusal(e.client.postCommand(ctx, e.urlFor("/models/load"), map[string]string{"model": s.ID}), "already")
}

// UnloadModel makes it unload the model.
func (e *llamacpp) UnloadModel(ctx context.Context, id string) error {
	return ignoreRefusal(e.client.postCommand(ctx, e.urlFor("/models/unload"), map[string]string{"model": id}), "not loaded", "not running")
}

// parseLlamaCPP parses llama.cpp's metrics, as leniently as parseVLLM.
func parseLlamaCPP(text []byte, last Reading, now time.Time) (Reading, bool) {
	var s metricSheet
	for l := range scanSeries(text, "llamacpp:") {
		switch string(l.name) {
		case "llamacpp:requests_processing":
			s.addSeries(qRunning, l)
		case "llamacpp:requests_deferred":
			s.addSeries(qWaiting, l)
		case "llamacpp:prompt_tokens_total":
			s.addSeries(qPrompt, l)
		case "llamacpp:tokens_predicted_total":
			s.addSeries(qOutput, l)
		case "llamacpp:kv_cache_usage_ratio": // builds before its removal
			s.addSeries(qUsage, l)
		}
	}
	if s.accepted == 0 {
		return last, false
	}
	return s.applyTo(last, now), true
}

// parseSlots parses llama.cpp's /slots.
func parseSlots(page []byte, last Reading, now time.Time) (Reading, bool) {
	var slots []struct {
		Busy  bool    `json:"is_processing"`
		State float64 `json:"state"` // in builds before is_processing: 0 is idle
	}
	if json.Unmarshal(page, &slots) != nil || len(slots) == 0 || len(slots) > maxSeqs {
		return last, false
	}
	last.Running, last.Waiting = 0, 0
	for _, s := range slots {
		if s.Busy || s.State > 0 {
			last.Running++
		}
	}
	last.Slots = int64(len(slots))
	last.ReadAt, last.LoadReadAt = now, now
	return last, true
}
