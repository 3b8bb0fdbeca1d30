package memnet

import (
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// window is how many bytes are on their way in one direction before the writer waits.
const window = 64 << 10

var errReset = &net.OpError{Op: "use", Net: "memory", Err: syscall.ECONNRESET}

// conn is one end of a connection.
type conn struct {
	net        *Net
	in, out    *way
	near, peer net.Addr
}

// pair is both ends of a connection.
func (n *Net) pair(from, to netip.AddrPort) (near, far net.Conn) {
	late := n.late(from.Addr(), to.Addr())
	up, down := newWay(late), newWay(late)
	client, server := net.TCPAddrFromAddrPort(from), net.TCPAddrFromAddrPort(to)
	a, b := &conn{n, down, up, client, server}, &conn{n, up, down, server, client}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open == nil {
		n.open = map[*conn]struct{}{}
	}
	n.open[a], n.open[b] = struct{}{}, struct{}{}
	return a, b
}

func (c *conn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c *conn) Write(b []byte) (int, error) { return c.out.write(b) }

// Close ends both directions: the other side reads what is on its way, and then the end.
func (c *conn) Close() error {
	c.net.mu.Lock()
	delete(c.net.open, c)
	c.net.mu.Unlock()
	c.out.end()
	c.in.abandon()
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.near }
func (c *conn) RemoteAddr() net.Addr { return c.peer }

func (c *conn) SetDeadline(t time.Time) error {
	c.in.deadline(&c.in.reader, t)
	c.out.deadline(&c.out.writer, t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.deadline(&c.in.reader, t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.deadline(&c.out.writer, t)
	return nil
}

// reset breaks both directions at once, and what is on its way is lost.
func (c *conn) reset() {
	for _, w := range []*way{c.in, c.out} {
		w.mu.Lock()
		w.broken, w.buf, w.ready = true, nil, 0
		w.news.Broadcast()
		w.mu.Unlock()
	}
}

// way is one direction.
type way struct {
	mu             sync.Mutex
	news           *sync.Cond
	buf            []byte
	delay          time.Duration
	ready          int  // bytes of buf that have arrived
	closed         bool // nothing more will be written
	ended          bool // and the reader has heard of it
	abandoned      bool // nobody will read
	gone           bool // this end was closed by its reader
	broken         bool // a side vanished
	reader, writer limit
}

// limit is a deadline of one side.
type limit struct {
	timer *time.Timer
	over  bool
}

func newWay(delay time.Duration) *way {
	w := &way{delay: delay}
	w.news = sync.NewCond(&w.mu)
	return w
}

func (w *way) read(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		switch {
		case w.gone:
			return 0, net.ErrClosed
		case w.broken:
			return 0, errReset
		case w.reader.over:
			return 0, os.ErrDeadlineExceeded
		case w.ready > 0 && len(b) > 0:
			n := copy(b, w.buf[:w.ready])
			w.buf, w.ready = w.buf[n:], w.ready-n
			if len(w.buf) == 0 {
				w.buf = nil
			}
			w.news.Broadcast()
			return n, nil
		case len(b) == 0:
			return 0, nil
		case w.ended && len(w.buf) == 0:
			return 0, io.EOF
		}
		w.news.Wait()
	}
}

func (w *way) write(b []byte) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		switch {
		case w.closed:
			return n, net.ErrClosed
		case w.broken:
			return n, errReset
		case w.abandoned:
			return n, &net.OpError{Op: "write", Net: "memory", Err: syscall.EPIPE}
		case w.writer.over:
			return n, os.ErrDeadlineExceeded
		case len(b) == 0:
			return n, nil
		}
		if room := window - len(w.buf); room > 0 {
			k := min(room, len(b))
			w.buf = append(w.buf, b[:k]...)
			b, n = b[k:], n+k
			w.after(func() { w.ready = min(w.ready+k, len(w.buf)) })
			continue
		}
		w.news.Wait()
	}
}

// end says that nothing more will be written.
func (w *way) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.writer.stop()
	w.after(func() { w.ended = true })
}

// after does what the other side is to see, when it has come there; w.mu is held then as now. What is written in one order
// arrives in that order: only how much has arrived counts.
func (w *way) after(f func()) {
	if w.delay <= 0 {
		f()
		w.news.Broadcast()
		return
	}
	time.AfterFunc(w.delay, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		f()
		w.news.Broadcast()
	})
}

// abandon says that nobody will read.
func (w *way) abandon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.abandoned, w.gone, w.buf, w.ready = true, true, nil, 0
	w.reader.stop()
	w.news.Broadcast()
}

func (w *way) deadline(l *limit, t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.set(t, &w.mu, w.news)
}

// set replaces the deadline; mu is held, and guards it.
func (l *limit) set(t time.Time, mu *sync.Mutex, news *sync.Cond) {
	l.stop()
	l.over = !t.IsZero() && !t.After(time.Now())
	if !t.IsZero() && !l.over {
		var timer *time.Timer
		timer = time.AfterFunc(time.Until(t), func() {
			mu.Lock()
			defer mu.Unlock()
			if l.timer == timer {
				l.over = true
				news.Broadcast()
			}
		})
		l.timer = timer
	}
	news.Broadcast()
}

func (l *limit) stop() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}
