package uplink

import (
	"log/slog"
	"sync"
	"sync/atomic"
)

// maxLogged bounds what is remembered of who was refused for what; beyond it refusals are only counted.
const maxLogged = 1024

// refusals counts refused peers and logs each reason once per peer, so that a stranger who knocks for ever fills neither
// the disk nor the memory.
type refusals struct {
	log   *slog.Logger
	count atomic.Uint64

	mu     sync.Mutex
	logged map[string]struct{}
}

func (r *refusals) refuse(peer, reason string) {
	r.count.Add(1)
	if r.first(peer + "\x00" + reason) {
		r.log.Warn("uplink peer refused", "peer", peer, "reason", reason)
	}
}

func (r *refusals) first(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, seen := r.logged[key]; seen || len(r.logged) >= maxLogged {
		return false
	}
	if r.logged == nil {
		r.logged = make(map[string]struct{})
	}
	r.logged[key] = struct{}{}
	return true
}
