package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"
)

// llamacpp reads llama.cpp's server. Its metrics need --metrics; without them /slots tells what runs, but not what
// waits. The gauge of KV usage is gone from present builds: the number of slots, each with its own share of the
// context, is what bounds a worker, and the ledger counts the rest. In router mode (no model given at its start) it
// loads models when they are first asked for.
type llamacpp struct {
	server
	slots   atomic.Int64 // sequences at once
	context atomic.Int64 // tokens of one slot
	mute    atomic.Int64 // unix nanoseconds until which /metrics is not asked again
}

// muteFor is how long a page that was off is left alone.
const muteFor = time.Minute

func (*llamacpp) Name() string { return "llamacpp" }

// Health asks /health, which is 503 while the model is being loaded.
func (e *llamacpp) Health(ctx context.Context) error { return e.ok(ctx, "/health") }

// Models asks /v1/models, and /props for what the one model's slots are like.
func (e *llamacpp) Models(ctx context.Context) ([]Model, error) {
	cards, err := e.cards(ctx)
	if err != nil {
		return nil, err
	}
	out := modelsOf(cards)
	router := false
	for i, c := range cards {
		switch c.Status.Value {
		case "":
		case "loaded":
			router = true
		default:
			router = true
			out[i].State = Cold
		}
	}
	if router {
		return out, nil
	}
	err = e.client.page(ctx, e.at("/props"), maxSmall, e.props)
	if missing(err) { // --no-slots and --props choose which of the two is there
		err = e.client.page(ctx, e.at("/slots"), maxSmall, e.sizes)
	}
	if err != nil && !missing(err) {
		return nil, err
	}
	for i := range out {
		out[i].MaxContext = e.context.Load()
	}
	return out, nil
}

func (e *llamacpp) props(page []byte) error {
	slots, size, err := parseProps(page)
	if err == nil {
		e.slots.Store(slots)
		e.context.Store(size)
	}
	return err
}

func (e *llamacpp) sizes(page []byte) error {
	slots, size, err := parseSlotSizes(page)
	if err == nil && slots > 0 && size > 0 {
		e.slots.Store(slots)
		e.context.Store(size)
	}
	return err
}

// parseSlotSizes reads from llama.cpp's /slots how many there are and the context of the smallest, in tokens; 0 for what it
// does not say.
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
	size = context64(list[0].Context)
	for _, s := range list {
		size = min(size, context64(s.Context))
	}
	return int64(len(list)), size, nil
}

// parseProps reads from llama.cpp's /props the number of slots and the tokens of each; 0 for what it does not say.
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
	return slots, context64(p.Settings.Context), nil
}

func (e *llamacpp) Metrics(ctx context.Context, last Reading) (Reading, error) {
	now := time.Now()
	if now.UnixNano() >= e.mute.Load() {
		next, err := e.scrape(ctx, e.metricsAt("/metrics"), last, parseLlamaCPP)
		if !missing(err) {
			return e.sized(next), err
		}
		e.mute.Store(now.Add(muteFor).UnixNano())
	}
	next, err := e.scrape(ctx, e.at("/slots"), last, parseSlots)
	next, err = orSilent(next, last, err)
	return e.sized(next), err
}

// sized adds what /props said.
func (e *llamacpp) sized(r Reading) Reading {
	if n, size := e.slots.Load(), e.context.Load(); n > 0 {
		r.Slots = n
		r.KVTotal = n * size
	}
	return r
}

// Load has a server in router mode load a model.
func (e *llamacpp) Load(ctx context.Context, s Source) error {
	return unless(e.client.command(ctx, e.at("/models/load"), map[string]string{"model": s.ID}), "already")
}

// Unload has it take the model out of memory.
func (e *llamacpp) Unload(ctx context.Context, id string) error {
	return unless(e.client.command(ctx, e.at("/models/unload"), map[string]string{"model": id}), "not loaded", "not running")
}

// parseLlamaCPP reads llama.cpp's metrics, as leniently as parseVLLM.
func parseLlamaCPP(text []byte, last Reading, now time.Time) (Reading, bool) {
	var s sheet
	for l := range lines(text, "llamacpp:") {
		switch string(l.name) {
		case "llamacpp:requests_processing":
			s.add(qRunning, l)
		case "llamacpp:requests_deferred":
			s.add(qWaiting, l)
		case "llamacpp:prompt_tokens_total":
			s.add(qPrompt, l)
		case "llamacpp:tokens_predicted_total":
			s.add(qOutput, l)
		case "llamacpp:kv_cache_usage_ratio": // builds before it was taken out
			s.add(qUsage, l)
		}
	}
	if s.taken == 0 {
		return last, false
	}
	return s.onto(last, now), true
}

// parseSlots reads llama.cpp's /slots.
func parseSlots(page []byte, last Reading, now time.Time) (Reading, bool) {
	var slots []struct {
		Busy  bool    `json:"is_processing"`
		State float64 `json:"state"` // of builds before is_processing: 0 is idle
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
	last.At, last.LoadAt = now, now
	return last, true
}
