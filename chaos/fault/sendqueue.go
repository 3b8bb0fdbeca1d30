package fault

import (
	"container/heap"
	"sync"
	"time"
)

// sendQueue sends datagrams when they are due.
type sendQueue struct {
	lateness *latenessMeter
	wake     chan struct{}
	done     chan struct{}

	mu    sync.Mutex
	heap  datagramHeap
	order uint64
}

func newSendQueue(m *latenessMeter) *sendQueue {
	return &sendQueue{lateness: m, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// schedule decides what happens to a datagram, and copies it if it is to be sent.
func (q *sendQueue) schedule(d *direction, data []byte, send func([]byte)) {
	d.mu.Lock()
	at, copies := d.shaper.sendDatagram(time.Now(), len(data), d.rng)
	d.mu.Unlock()
	if copies == 0 {
		return
	}
	data = append([]byte(nil), data...)
	q.mu.Lock()
	for i := range copies {
		if len(q.heap) < maxUnderWay {
			q.order++
			heap.Push(&q.heap, datagram{at[i], q.order, data, send})
		}
	}
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// run sends until close.
func (q *sendQueue) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := time.Hour
		now := time.Now()
		for {
			q.mu.Lock()
			if len(q.heap) == 0 || q.heap[0].due.After(now) {
				if len(q.heap) > 0 {
					wait = q.heap[0].due.Sub(now)
				}
				q.mu.Unlock()
				break
			}
			g := heap.Pop(&q.heap).(datagram)
			q.mu.Unlock()
			q.lateness.addLateness(now.Sub(g.due))
			g.send(g.data)
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-q.wake:
		case <-q.done:
			return
		}
	}
}

func (q *sendQueue) close() { close(q.done) }
