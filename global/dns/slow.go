package dns

import (
	"net/netip"
)

// slowQueueLen is how many messages may wait for the slow path. They are answered within some milliseconds; further
// ones are dropped, as with a full socket buffer.
const slowQueueLen = 512

// slowPath is a fixed number of goroutines that answer what the fast path declines. Jobs circulate between the two
// channels: a reader never waits for a free job and never allocates one.
type slowPath struct {
	freeJobs, readyJobs chan *slowJob
}

// slowJob is one message in the slow path.
type slowJob struct {
	sock *udpSocket
	from netip.AddrPort
	oob  [controlSize]byte
	oobn int
	n    int
	msg  [maxQueryLen]byte
}

func newSlowPath() *slowPath {
	return &slowPath{freeJobs: make(chan *slowJob, slowQueueLen), readyJobs: make(chan *slowJob, slowQueueLen)}
}

// allocateJobs allocates the jobs. Pages that are never used take no physical memory.
func (p *slowPath) allocateJobs() {
	jobs := make([]slowJob, slowQueueLen)
	for i := range jobs {
		p.freeJobs <- &jobs[i]
	}
}

// offerJob queues a message and returns false if there is no room.
func (p *slowPath) offerJob(sock *udpSocket, msg, oob []byte, from netip.AddrPort) bool {
	select {
	case j := <-p.freeJobs:
		j.sock, j.from = sock, from
		j.n, j.oobn = copy(j.msg[:], msg), copy(j.oob[:], oob)
		p.readyJobs <- j // never full: it has room for all jobs
		return true
	default:
		return false
	}
}
