package regional

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// refusalBurst and refusalRate bound the invalid tokens and tickets of one client address that are checked: a
	// burst, and a rate per second after it. A signature check takes about 0.1 ms of CPU, so an address that sends
	// only invalid ones takes a thousandth of a core.
	refusalBurst = 50
	refusalRate  = 10.0
	// maxRefusalAddrs bounds the addresses that are kept, about 1 MiB. Beyond it an arbitrary one is evicted.
	maxRefusalAddrs = 1 << 13
)

// refusalLimiter counts refused tokens and tickets by client address.
type refusalLimiter struct {
	mu     sync.Mutex
	levels map[netip.Addr]refusalLevel
}

// refusalLevel is the number of refusals that count at a moment; it decreases by refusalRate per second.
type refusalLevel struct {
	count float64
	at    time.Time
}

func (l refusalLevel) countAt(now time.Time) float64 {
	return max(l.count-refusalRate*max(now.Sub(l.at), 0).Seconds(), 0)
}

// isExhausted reports whether tokens and tickets of an address are not checked at now. An unknown address has no
// bound.
func (r *refusalLimiter) isExhausted(a netip.Addr, now time.Time) bool {
	if !a.IsValid() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l, ok := r.levels[clientKeyOf(a)]
	return ok && l.countAt(now) > refusalBurst-1
}

// addRefusal counts a refusal.
func (r *refusalLimiter) addRefusal(a netip.Addr, now time.Time) {
	if !a.IsValid() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.levels == nil {
		r.levels = map[netip.Addr]refusalLevel{}
	}
	a = clientKeyOf(a)
	l, ok := r.levels[a]
	if !ok && len(r.levels) >= maxRefusalAddrs {
		r.evictRefusals(now)
	}
	r.levels[a] = refusalLevel{l.countAt(now) + 1, now}
}

// evictRefusals makes room: it deletes addresses without recent refusals, or else an arbitrary one.
func (r *refusalLimiter) evictRefusals(now time.Time) {
	for a, l := range r.levels {
		if l.countAt(now) == 0 {
			delete(r.levels, a)
		}
	}
	for a := range r.levels {
		if len(r.levels) < maxRefusalAddrs {
			return
		}
		delete(r.levels, a)
	}
}
