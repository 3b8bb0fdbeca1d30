package main

import (
	"container/heap"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"

const (
	eventHead = `data: {"id":"c-1","object":"chat.completion.chunk","choices":[{"delta":{"content":"token ` + stamp
	eventTail = `"}}]}` + "\n\n"
	// stamp stands before the time at which an event was sent, in nanoseconds, 19 digits. It is in the text: with engines
	// too events differ in nothing else.
	stamp = "t="
)

// appendEvent appends one event as a chunk of its own, as most servers of engines write them.
func appendEvent(b []byte) []byte {
	b = strconv.AppendInt(b, int64(len(eventHead)+19+len(eventTail)), 16)
	b = append(append(b, "\r\n"...), eventHead...)
	b = strconv.AppendInt(b, time.Now().UnixNano(), 10)
	return append(b, eventTail+"\r\n"...)
}

var (
	streamEnd = []byte("e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
	errStall  = errors.New("the reader is too slow")
)

// stream answers with events until n were sent; for ever when n is 0.
func stream(c net.Conn, p *pacer, n, gap int64) error {
	if _, err := c.Write(appendEvent([]byte(streamHead))); err != nil {
		return err
	}
	if gap == 0 {
		_, err := c.Read(make([]byte, 1)) // until the other side has had enough
		return errors.Join(err, errStall)
	}
	t := &ticket{gap: gap, left: n - 1, done: make(chan error, 1)}
	if n == 0 {
		t.left = 1 << 62
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	if err := raw.Control(func(fd uintptr) { t.fd = int(fd) }); err != nil {
		return err
	}
	t.next = time.Now().UnixNano() + rand.Int64N(gap)
	p.mu.Lock()
	p.fresh = append(p.fresh, t)
	p.mu.Unlock()
	return <-t.done
}

// ticket is one stream that is being written.
type ticket struct {
	next, gap, left int64
	fd              int
	done            chan error
}

// pacer writes all streams' events from one thread, each at its time to a few microseconds: timers of the runtime come
// in steps of a millisecond when a process is idle, and would turn events that are spread evenly into bursts.
type pacer struct {
	mu    sync.Mutex
	fresh []*ticket
	due   tickets
}

func newPacer() *pacer { return &pacer{} }

type tickets []*ticket

func (t tickets) Len() int           { return len(t) }
func (t tickets) Less(i, j int) bool { return t[i].next < t[j].next }
func (t tickets) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *tickets) Push(x any)        { *t = append(*t, x.(*ticket)) }
func (t *tickets) Pop() any {
	old := *t
	x := old[len(old)-1]
	*t = old[:len(old)-1]
	return x
}

// run never returns.
func (p *pacer) run() {
	sleepFinely()
	buf := make([]byte, 0, 512)
	for {
		p.mu.Lock()
		for _, t := range p.fresh {
			heap.Push(&p.due, t)
		}
		p.fresh = p.fresh[:0]
		p.mu.Unlock()
		now := time.Now().UnixNano()
		wait := int64(time.Millisecond / 2)
		for len(p.due) > 0 {
			t := p.due[0]
			if t.next > now {
				wait = min(wait, t.next-now)
				break
			}
			piece := appendEvent(buf)
			if t.left <= 0 {
				piece = streamEnd
			}
			n, err := syscall.Write(t.fd, piece)
			if err == nil && n != len(piece) {
				err = errStall
			}
			if err != nil && !errors.Is(err, syscall.EAGAIN) || t.left <= 0 {
				heap.Pop(&p.due)
				t.done <- err
				continue
			}
			t.left--
			t.next += t.gap
			heap.Fix(&p.due, 0)
			now = time.Now().UnixNano()
		}
		sleepNanos(wait)
	}
}
