package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Known remembers the members of a metric's vector, so that one that was counted before is found without a look at all its
// labels' bytes. What bounds the vector bounds it, and maxKnown besides. Safe for
// concurrent use.
type Known[K comparable, M any] struct {
	find func(K) M
	mu   sync.Mutex
	seen atomic.Pointer[map[K]M]
}

// maxKnown bounds what is remembered. What is not is found each time.
const maxKnown = 8192

// NewKnown remembers what find finds.
func NewKnown[K comparable, M any](find func(K) M) *Known[K, M] {
	k := &Known[K, M]{find: find}
	k.seen.Store(&map[K]M{})
	return k
}

// Of is the member of a key.
func (k *Known[K, M]) Of(key K) M {
	if m, ok := (*k.seen.Load())[key]; ok {
		return m
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	old := *k.seen.Load()
	if m, ok := old[key]; ok {
		return m
	}
	if len(old) >= maxKnown {
		return k.find(key)
	}
	all := make(map[K]M, len(old)+1)
	maps.Copy(all, old)
	all[key] = k.find(key)
	k.seen.Store(&all)
	return all[key]
}
