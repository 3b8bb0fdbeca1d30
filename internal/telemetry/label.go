package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"
)

// OtherLabel replaces every value beyond the bound of a BoundedLabel.
const OtherLabel = "other"

// BoundedLabel bounds the number of values of one label, so that input from outside cannot grow a metric without bound. Safe
// for concurrent use.
type BoundedLabel struct {
	mu   sync.RWMutex
	max  int
	seen map[string]struct{}
}

// NewBoundedLabel returns a label that accepts the first max different values.
func NewBoundedLabel(max int) *BoundedLabel {
	return &BoundedLabel{max: max, seen: make(map[string]struct{}, max)}
}

// BoundValue returns v, or OtherLabel if v is new and max values were accepted already.
func (l *BoundedLabel) BoundValue(v string) string {
	l.mu.RLock()
	_, ok := l.seen[v]
	full := len(l.seen) >= l.max
	l.mu.RUnlock()
	switch {
	case ok:
		return v
	case full:
		return OtherLabel
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.seen[v]; !ok && len(l.seen) >= l.max {
		return OtherLabel
	}
	l.seen[v] = struct{}{}
	return v
}

// MemberCache caches the members of a metric vector by a comparable key, because prometheus hashes all label values at each
// lookup. It is bounded by the size of the vector and by maxCachedMembers. Safe for concurrent use.
type MemberCache[K comparable, M any] struct {
	lookup  func(K) M
	mu      sync.Mutex
	members atomic.Pointer[map[K]M]
}

// maxCachedMembers bounds the cache. Members beyond it are looked up each time.
const maxCachedMembers = 8192

// NewMemberCache returns a cache of the results of find.
func NewMemberCache[K comparable, M any](find func(K) M) *MemberCache[K, M] {
	k := &MemberCache[K, M]{lookup: find}
	k.members.Store(&map[K]M{})
	return k
}

// FindMember returns the member of a key.
func (k *MemberCache[K, M]) FindMember(key K) M {
	if m, ok := (*k.members.Load())[key]; ok {
		return m
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	old := *k.members.Load()
	if m, ok := old[key]; ok {
		return m
	}
	if len(old) >= maxCachedMembers {
		return k.lookup(key)
	}
	all := make(map[K]M, len(old)+1)
	maps.Copy(all, old)
	all[key] = k.lookup(key)
	k.members.Store(&all)
	return all[key]
}
