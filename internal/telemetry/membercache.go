package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"
)

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
