package regional

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// refusalBurst and refusalRate bound the tokens and tickets of one client address that are checked and refused: so many
	// at once, and so many a second from then on. A check of a signature costs some 0.1 ms of CPU, so that an address that
	// only sends bad ones takes a thousandth of a core.
	refusalBurst = 50
	refusalRate  = 10.0
	// maxRefusals bounds the addresses that are remembered, about 1 MiB. Beyond it any of them is forgotten.
	maxRefusals = 1 << 13
)

// refusals counts refused tokens and tickets by client address.
type refusals struct {
	mu sync.Mutex
	of map[netip.Addr]refusalLevel
}

// refusalLevel is how many refusals count at a moment; they are forgotten at refusalRate.
type refusalLevel struct {
	n  float64
	at time.Time
}

func (l refusalLevel) now(now time.Time) float64 {
	return max(l.n-refusalRate*max(now.Sub(l.at), 0).Seconds(), 0)
}

// full reports whether nothing more of an address is checked at now. An address that is not known has no bound.
func (r *refusals) full(a netip.Addr, now time.Time) bool {
	if !a.IsValid() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l, ok := r.of[site(a)]
	return ok && l.now(now) > refusalBurst-1
}

// add counts a refusal.
func (r *refusals) add(a netip.Addr, now time.Time) {
	if !a.IsValid() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[netip.Addr]refusalLevel{}
	}
	a = site(a)
	l, ok := r.of[a]
	if !ok && len(r.of) >= maxRefusals {
		r.forget(now)
	}
	r.of[a] = refusalLevel{l.now(now) + 1, now}
}

// forget makes room: addresses without recent refusals go, or else any one.
func (r *refusals) forget(now time.Time) {
	for a, l := range r.of {
		if l.now(now) == 0 {
			delete(r.of, a)
		}
	}
	for a := range r.of {
		if len(r.of) < maxRefusals {
			return
		}
		delete(r.of, a)
	}
}
