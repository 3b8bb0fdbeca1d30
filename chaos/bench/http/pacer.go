//go:build !windows

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

	"github.com/spillway-lb/spillway/chaos/bench/machine"
)

const streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"

const (
	eventHead = `data: {"id":"c-1","object":"chat.completion.chunk","choices":[{"delta":{"content":"token ` + timestampMark
	eventTail = `"}}]}` + "\n\n"
	// timestampMark precedes the send time of an event, in nanoseconds, 19 digits. It is part of the text: events of
	// real engines, too, differ only in the text.
	timestampMark = "t="
)

// appendEvent appends one event as a chunk of its own, as most servers of engines write them.
func appendEvent(b []byte) []byte {
	b = strconv.AppendInt(b, int64(len(eventHead)+19+len(eventTail)), 16)
	b = append(append(b, "\r\n"...), eventHead...)
	b = strconv.AppendInt(b, time.Now().UnixNano(), 10)
	return append(b, eventTail+"\r\n"...)
}

var (
	streamEnd     = []byte("e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
	errSlowReader = errors.New("the reader is too slow")
)

// streamEvents answers with n events, without end when n is 0.
func streamEvents(c net.Conn, p *eventPacer, n, gap int64) error {
	if _, err := c.Write(appendEvent([]byte(streamHead))); err != nil {
		return err
	}
	if gap == 0 {
		_, err := c.Read(make([]byte, 1)) // until the other side closes
		return errors.Join(err, errSlowReader)
	}
	t := &pacedStream{gap: gap, left: n - 1, done: make(chan error, 1)}
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
	p.added = append(p.added, t)
	p.mu.Unlock()
	return <-t.done
}

// pacedStream is one stream that is being written.
type pacedStream struct {
	next, gap, left int64
	fd              int
	done            chan error
}

// eventPacer writes the events of all streams on one thread, each on time within a few microseconds: runtime timers
// have steps of a millisecond when a process is idle, and would group evenly spaced events into bursts.
type eventPacer struct {
	mu    sync.Mutex
	added []*pacedStream
	due   pacedStreamHeap
}

func newEventPacer() *eventPacer { return &eventPacer{} }

type pacedStreamHeap []*pacedStream

func (t pacedStreamHeap) Len() int           { return len(t) }
func (t pacedStreamHeap) Less(i, j int) bool { return t[i].next < t[j].next }
func (t pacedStreamHeap) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *pacedStreamHeap) Push(x any)        { *t = append(*t, x.(*pacedStream)) }
func (t *pacedStreamHeap) Pop() any {
	old := *t
	x := old[len(old)-1]
	*t = old[:len(old)-1]
	return x
}

// runForever never returns.
func (p *eventPacer) runForever() {
	machine.UseFineTimers()
	buf := make([]byte, 0, 512)
	for {
		p.mu.Lock()
		for _, t := range p.added {
			heap.Push(&p.due, t)
		}
		p.added = p.added[:0]
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
				err = errSlowReader
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
		machine.SleepNanos(wait)
	}
}
