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
	batch [maxKinds]Event
	kinds int
}

// maxKinds is how many different events one batch tells apart before it reports.
const maxKinds = 16

func newReader(s *Server, sock *socket) *reader {
	return &reader{s: s, sock: sock, fast: fast{h: &s.handler}}
}

// answer answers one message at once, or hands it to the slow path and returns nothing.
func (r *reader) answer(dst, msg []byte, from netip.Addr, now time.Time) (n int, slow bool) {
	defer func() {
		if p := recover(); p != nil { // one message may cost its own answer, never everybody's
			r.s.cfg.Log.Error("answering a message panicked", "panic", fmt.Sprint(p))
			r.count(Event{N: 1, Rcode: Dropped, Service: -1})
			n, slow = 0, false
		}
	}()
	n, event, ok := r.fast.answer(dst, msg, from, now)
	if ok {
		r.count(event)
	}
	return n, !ok
}

// count adds an event to those of its kind in this batch.
func (r *reader) count(e Event) {
	for i := range r.batch[:r.kinds] {
		n := r.batch[i].N
		r.batch[i].N = e.N
		if r.batch[i] == e {
			r.batch[i].N += n
			return
		}
		r.batch[i].N = n
	}
	if r.kinds == maxKinds {
		r.report(0)
	}
	r.batch[r.kinds] = e
	r.kinds++
}

// report tells the observer what was counted; each took dur.
func (r *reader) report(dur time.Duration) {
	for i := range r.batch[:r.kinds] {
		r.batch[i].Dur = dur
		r.s.cfg.Observe(r.batch[i])
	}
	r.kinds = 0
}
