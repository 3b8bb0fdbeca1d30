package dns

import (
	"net/netip"
)

// slowQueue is how many messages may wait for the slow path. It answers them within some milliseconds; what comes on
// top of that is lost as in a full socket.
const slowQueue = 512

// slowPath is a fixed number of goroutines that answer what the fast path declines. Jobs go round between the two
// channels: a reader never waits for a free one and never makes one.
type slowPath struct {
	free, ready chan *job
}

// job is one message on its way through the slow path.
type job struct {
	sock *socket
	from netip.AddrPort
	oob  [controlSize]byte
	oobn int
	n    int
	msg  [maxQuery]byte
}

func newSlowPath() *slowPath {
	return &slowPath{free: make(chan *job, slowQueue), ready: make(chan *job, slowQueue)}
}

// fill makes the jobs. Memory that no flood ever touches is never the process's.
func (p *slowPath) fill() {
	jobs := make([]job, slowQueue)
	for i := range jobs {
		p.free <- &jobs[i]
	}
}

// offer hands a message over and reports false when there is no room.
func (p *slowPath) offer(sock *socket, msg, oob []byte, from netip.AddrPort) bool {
	select {
	case j := <-p.free:
		j.sock, j.from = sock, from
		j.n, j.oobn = copy(j.msg[:], msg), copy(j.oob[:], oob)
		p.ready <- j // never full: it has room for all jobs
		return true
	default:
		return false
	}
}

// serveSlow answers until there are no readers any more and nothing waits.
func (s *Server) serveSlow() {
	out := make([]byte, 2*ourSize)
	for j := range s.slow.ready {
		if reply, ok := s.answer(out, j.msg[:j.n], j.from.Addr(), UDP); ok {
			j.sock.reply(reply, sourceControl(j.oob[:j.oobn]), j.from)
		}
		s.slow.free <- j
	}
}

// decline hands a message to the slow path, or counts it as lost.
func (r *reader) decline(msg, oob []byte, from netip.AddrPort) {
	if !r.s.slow.offer(r.sock, msg, oob, from) {
		r.count(outcome{failed: true})
	}
}
