package dns

import (
	"fmt"
	"net/netip"
	"time"
)

// maxQuery is the largest query that is read over UDP, in bytes: padded ones exceed 512.
const maxQuery = 4096

// controlSize holds one control message of either family.
const controlSize = 64

// errorPause is how long a reader rests when the socket fails.
const errorPause = time.Millisecond

// reader answers what comes in at one socket. There is one goroutine for each reader, none for each query, and no
// queue but the bounded one of the slow path, so a flood costs lost packets and never memory.
type reader struct {
	s     *Server
	sock  *socket
	fast  fast
	clock clock
	tally
}

// tally counts outcomes until they are worth reporting: telling the observer costs more than an answer does.
type tally struct {
	batch    [maxKinds]outcome // each kind once
	many     [maxKinds]int     // how many of each kind
	kinds    int
	sum      int           // of many
	took     time.Duration // for one message, when it was measured last
	reported time.Time
}

// Bounds of what is counted and not reported yet.
const (
	maxKinds    = 16
	reportEvery = 512
	reportAfter = 100 * time.Millisecond
)

// due reports whether what is counted should be reported by now.
func (t *tally) due(now time.Time) bool {
	return t.sum >= reportEvery || now.Sub(t.reported) >= reportAfter
}

func newReader(s *Server, sock *socket) *reader {
	return &reader{s: s, sock: sock, fast: newFast(&s.handler)}
}

// answer answers one message at once, or hands it to the slow path and returns nothing.
func (r *reader) answer(dst, msg []byte, from netip.Addr, now time.Time) (n int, slow bool) {
	defer r.survive(&n, &slow)
	n, out, ok := r.fast.answer(dst, msg, from, now)
	if ok {
		r.count(out)
		return n, false
	}
	return 0, true
}

// survive lets a message that panics cost its own answer, never everybody's.
func (r *reader) survive(n *int, slow *bool) {
	if p := recover(); p != nil {
		r.s.cfg.Log.Error("answering a message panicked", "panic", fmt.Sprint(p))
		r.count(outcome{failed: true})
		*n, *slow = 0, false
	}
}

// count adds an outcome to those of its kind.
func (r *reader) count(o outcome) {
	r.sum++
	for i := range r.batch[:r.kinds] {
		if r.batch[i] == o {
			r.many[i]++
			return
		}
	}
	if r.kinds == maxKinds {
		r.report(r.reported)
		r.sum = 1
	}
	r.batch[r.kinds], r.many[r.kinds] = o, 1
	r.kinds++
}

// report tells the observer what was counted.
func (r *reader) report(now time.Time) {
	for i := range r.batch[:r.kinds] {
		event := r.batch[i].event(r.many[i])
		event.Dur = r.took
		r.s.cfg.Observe(event)
	}
	r.kinds, r.sum, r.reported = 0, 0, now
}
