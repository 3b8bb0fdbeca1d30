package dns

import (
	"fmt"
	"net/netip"
	"time"
)

// maxQueryLen is the largest query that is read over UDP, in bytes: padded ones exceed 512.
const maxQueryLen = 4096

// controlSize holds one control message of either family.
const controlSize = 64

// errorPause is how long a reader pauses after a socket error.
const errorPause = time.Millisecond

// udpReader answers the messages of one socket. There is one goroutine for each reader, none for each query, and no
// queue but the bounded one of the slow path, so a flood costs lost packets but no memory.
type udpReader struct {
	server *Server
	sock   *udpSocket
	fast   fastPath
	clock  coarseClock
	eventTally
}

// eventTally counts outcomes between reports: a call of the observer costs more than an answer.
type eventTally struct {
	outcomes     [maxKinds]fastOutcome // the different outcomes
	counts       [maxKinds]int         // number of each outcome
	kinds        int
	total        int           // of all outcomes
	lastDuration time.Duration // for one message, at the last measurement
	reportedAt   time.Time
}

// Bounds of what is counted and not reported yet.
const (
	maxKinds       = 16
	reportCount    = 512
	reportInterval = 100 * time.Millisecond
)

// isReportDue reports whether the counts should be reported now.
func (t *eventTally) isReportDue(now time.Time) bool {
	return t.total >= reportCount || now.Sub(t.reportedAt) >= reportInterval
}

func newUDPReader(s *Server, sock *udpSocket) *udpReader {
	return &udpReader{server: s, sock: sock, fast: newFastPath(&s.handler)}
}

// answerQuery answers one message, or passes it to the slow path and returns nothing.
func (r *udpReader) answerQuery(dst, msg []byte, from netip.Addr, now time.Time) (n int, slow bool) {
	defer r.recoverPanic(&n, &slow)
	n, out, ok := r.fast.answerQuery(dst, msg, from, now)
	if ok {
		r.countOutcome(out)
		return n, false
	}
	return 0, true
}

// passToSlowPath passes a message to the slow path, or counts it as lost.
func (r *udpReader) passToSlowPath(msg, oob []byte, from netip.AddrPort) {
	if !r.server.slow.offerJob(r.sock, msg, oob, from) {
		r.countOutcome(fastOutcome{failed: true})
	}
}

// recoverPanic limits a panic to the loss of one answer.
func (r *udpReader) recoverPanic(n *int, slow *bool) {
	if p := recover(); p != nil {
		r.server.cfg.Log.Error("answering a message panicked", "panic", fmt.Sprint(p))
		r.countOutcome(fastOutcome{failed: true})
		*n, *slow = 0, false
	}
}

// countOutcome adds an outcome to the tally.
func (r *udpReader) countOutcome(o fastOutcome) {
	r.total++
	for i := range r.outcomes[:r.kinds] {
		if r.outcomes[i] == o {
			r.counts[i]++
			return
		}
	}
	if r.kinds == maxKinds {
		r.reportCounts(r.reportedAt)
		r.total = 1
	}
	r.outcomes[r.kinds], r.counts[r.kinds] = o, 1
	r.kinds++
}

// reportCounts calls the observer with the tally.
func (r *udpReader) reportCounts(now time.Time) {
	for i := range r.outcomes[:r.kinds] {
		event := r.outcomes[i].toEvent(r.counts[i])
		event.Duration = r.lastDuration
		r.server.cfg.Observe(event)
	}
	r.kinds, r.total, r.reportedAt = 0, 0, now
}
