package zone

import (
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/explain"
)

const (
	// unlearnedRate is the prefill rate of a ready worker nobody has measured yet, in tokens/s: that of a small GPU, so
	// that unknown hardware is tried and not flooded.
	unlearnedRate = 3000
	// unlearnedDecode is the same for decoding.
	unlearnedDecode = 300
	// assumedOutput is how many tokens a running sequence still has before it on average.
	assumedOutput = 256
	// unknownRTT stands for a round trip to a peer that was never measured.
	unknownRTT = 150 * time.Millisecond
	// crowding is the part of a step at which decode rates are stated, with 32 sequences of a thousand tokens each, that is the
	// sequences' and not the weights': 0.22 to 0.31 on T4 to B200, less for models that several GPUs share.
	crowding = 0.25
	// maxRoomWait caps the predicted wait for KV and slots, in seconds: past that the prediction means only "full".
	maxRoomWait = 60
)

// model is the child's entry for the workers that may serve the query: those of its pool, where the child says what they
// can do, and of a pool that may overflow the others' if they are sooner.
func (q *Query) model(s *capacity.Summary) *capacity.Model {
	m := s.Model(q.Model)
	if m == nil || q.Pool == "" {
		return m
	}
	p := m.Pool(q.Pool)
	switch {
	case p == nil:
		return m // a release that does not say, or one pool too many
	case !q.Overflow || m.Ready == 0:
		return p
	case p.Ready == 0 || q.ahead(p) > q.ahead(m):
		return m
	}
	return p
}

// ahead is the wait at an entry, in seconds.
func (q *Query) ahead(m *capacity.Model) float64 {
	return float64(m.Ahead[q.Class]) / max(float64(m.PrefillRate()), 1)
}

// fits returns the child's entry for the query's model, or why the child cannot serve it.
func (q *Query) fits(s *capacity.Summary) (*capacity.Model, string) {
	m := q.model(s)
	switch {
	case m == nil:
		return nil, DropModel
	case m.Ready <= 0:
		return nil, DropNotReady
	case m.MaxContext > 0 && int64(TooLongFrom(q.PromptTokens)) >= m.MaxContext:
		return nil, DropContext
	}
	return m, ""
}

// seconds prices the query at one child and writes the terms down. credit says whether the statement is fresh enough
// to be believed about caches.
func (q *Query) seconds(m *capacity.Model, path capacity.Path, credit bool, h explain.Handle) price {
	load := q.Ledger.Uncredited(path, q.Model)
	rate := float64(m.PrefillRate())
	if rate <= 0 {
		rate = unlearnedRate * float64(m.Ready)
	}
	wait := float64(m.Ahead[q.Class]+load.Tokens) / rate
	h.Term("wait", wait)
	own := rate / float64(m.Ready)
	prefill := float64(q.PromptTokens) / own
	h.Term("prefill", prefill)
	room := q.room(m, load)
	h.Term("kv_wait", room)
	var saved float64
	if credit {
		if saved = float64(q.cached(m, path)) / own; saved > 0 {
			h.Term("credit", -saved)
		}
	}
	beside := q.beside(m, load, prefill-saved)
	h.Term("decode", beside)
	return price{wait + prefill + room - saved, beside}
}

// decodeRate is the workers' together, in tokens/s.
func decodeRate(m *capacity.Model) float64 {
	if rate := m.DecodeRate(); rate > 0 {
		return float64(rate)
	}
	return unlearnedDecode * float64(m.Ready)
}

// room is the predicted wait until KV tokens and a sequence slot are free, in seconds.
func (q *Query) room(m *capacity.Model, load Load) float64 {
	decode := decodeRate(m)
	var wait float64
	if m.KVTotal > 0 {
		if short := int64(q.PromptTokens+q.MaxTokens) - (m.KVFree - load.KV); short > 0 {
			wait = float64(short) / decode
		}
	}
	if m.SlotsTotal > 0 {
		if short := load.Requests + 1 - m.SlotsFree; short > 0 {
			wait = max(wait, float64(short)*assumedOutput/decode)
		}
	}
	return min(wait, maxRoomWait)
}

// held is how many of the prompt's tokens the child need not compute, as far as its statement is to be believed.
func (q *Query) held(s *capacity.Summary, path capacity.Path, state capacity.Freshness) int64 {
	if m := q.model(s); m != nil && m.Ready > 0 && state == capacity.Fresh {
		return q.cached(m, path)
	}
	return 0
}

// cached is how many of the prompt's tokens the child is believed to have cached: by its sketch, or because the session
// was served there last.
func (q *Query) cached(m *capacity.Model, path capacity.Path) int64 {
	held := cached(q.Prefix, m.Prefixes)
	if q.HomeTokens > 0 && path == q.Home {
		held = max(held, int64(q.HomeTokens))
	}
	return min(held, int64(q.PromptTokens))
}

// cached is the length of the longest of the query's prefixes that the sketch holds, in tokens.
func cached(prefix []uint64, sketch []capacity.Prefix) int64 {
	for i := len(prefix) - 1; i >= 0; i-- {
		for j := range sketch {
			if sketch[j].Hash == prefix[i] {
				return sketch[j].Tokens
			}
		}
	}
	return 0
}

// TooLongFrom is the length that a prompt of about tokens tokens surely has. An estimate from bytes may be a quarter too
// long, and a request that might fit must reach the engine, which counts exactly.
func TooLongFrom(tokens int) int { return tokens * 4 / 5 }
