package global

import (
	"bytes"
	"sync"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/spec"
)

// maxCachedTexts bounds the cached texts: an applied text is decoded in four places, and the one before it in two.
const maxCachedTexts = 4

// decodeCache caches the decoded forms of the last texts, newest first. Decoding a spec of 10,000 objects takes
// 40 ms, and a plan of 8,192 rows takes a millisecond of a core that also answers queries. The decoded
// values are read-only. The nodes of a process share the cache.
type decodeCache[T any] struct {
	mu     sync.Mutex
	newest []decodedText[T]
	decode func(text []byte) (*T, error)
}

type decodedText[T any] struct {
	text  []byte
	value *T
}

var (
	specCache = decodeCache[spec.Spec]{decode: func(text []byte) (*spec.Spec, error) { return spec.Decode("spec", text) }}
	planCache = decodeCache[steer.Plan]{decode: steer.DecodePlan}
)

// decodeText decodes an agreed text.
func (r *decodeCache[T]) decodeText(text []byte) (*T, error) {
	if x := r.findDecoded(text); x != nil {
		return x, nil
	}
	x, err := r.decode(text)
	if err == nil {
		r.addDecoded(text, x)
	}
	return x, err
}

func (r *decodeCache[T]) findDecoded(text []byte) *T {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.newest {
		if bytes.Equal(x.text, text) {
			return x.value
		}
	}
	return nil
}

// addDecoded caches the decoded form of a text. The text must not be modified after that.
func (r *decodeCache[T]) addDecoded(text []byte, as *T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest = append([]decodedText[T]{{text, as}}, r.newest[:min(len(r.newest), maxCachedTexts-1)]...)
}

// textOf returns the text that x was decoded from, or nil if it is no longer cached.
func (r *decodeCache[T]) textOf(x *T) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.newest {
		if k.value == x {
			return k.text
		}
	}
	return nil
}

// encodeSpec is spec.Encode with a cache: encoding 10,000 objects takes tens of milliseconds.
func encodeSpec(s *spec.Spec) []byte {
	if text := specCache.textOf(s); text != nil {
		return text
	}
	text := spec.Encode(s)
	specCache.addDecoded(text, s)
	return text
}

// checkPlan is steer.CheckPlan with a cache. It validates plans before they enter the Raft log.
func checkPlan(prev, next []byte) error { return steer.CheckPlanWith(planCache.decodeText, prev, next) }
