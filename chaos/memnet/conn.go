package memnet

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// window is how many bytes are on their way in one direction before the writer waits.
const window = 64 << 10

// conn is one end of a connection.
type conn struct {
	in, out    *way
	near, peer net.Addr
}

// pair is both ends of a connection.
func pair(client, server net.Addr) (near, far net.Conn) {
	up, down := newWay(), newWay()
	return &conn{in: down, out: up, near: client, peer: server}, &conn{in: up, out: down, near: server, peer: client}
}

func (c *conn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c *conn) Write(b []byte) (int, error) { return c.out.write(b) }

// Close ends both directions: the other side reads what is on its way, and then the end.
func (c *conn) Close() error {
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

// way is one direction.
type way struct {
	mu             sync.Mutex
	news           *sync.Cond
	buf            []byte
	ended          bool // nothing more will be written
	abandoned      bool // nobody will read
	gone           bool // this end was closed by its reader
	reader, writer limit
}

// limit is a deadline of one side.
type limit struct {
	timer *time.Timer
	over  bool
}

func newWay() *way {
	w := &way{}
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
		case w.reader.over:
			return 0, os.ErrDeadlineExceeded
		case len(w.buf) > 0 && len(b) > 0:
			n := copy(b, w.buf)
			w.buf = w.buf[n:]
			if len(w.buf) == 0 {
				w.buf = nil
			}
			w.news.Broadcast()
			return n, nil
		case len(b) == 0:
			return 0, nil
		case w.ended:
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
		case w.ended:
			return n, net.ErrClosed
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
			w.news.Broadcast()
			continue
		}
		w.news.Wait()
	}
}

// end says that nothing more will be written.
func (w *way) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.writer.stop()
	w.news.Broadcast()
}

// abandon says that nobody will read.
func (w *way) abandon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.abandoned, w.gone, w.buf = true, true, nil
	w.reader.stop()
	w.news.Broadcast()
}

func (w *way) deadline(l *limit, t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.stop()
	l.over = !t.IsZero() && !t.After(time.Now())
	if !t.IsZero() && !l.over {
		var timer *time.Timer
		timer = time.AfterFunc(time.Until(t), func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if l.timer == timer {
				l.over = true
				w.news.Broadcast()
			}
		})
		l.timer = timer
	}
	w.news.Broadcast()
}

func (l *limit) stop() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}
