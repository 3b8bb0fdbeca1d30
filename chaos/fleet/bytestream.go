package fleet

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// windowBytes is how many bytes may be in transit in one direction before the writer blocks.
const windowBytes = 64 << 10

var errReset = &net.OpError{Op: "use", Net: "memory", Err: syscall.ECONNRESET}

// byteStream is one direction.
type byteStream struct {
	mu                          sync.Mutex
	changed                     *sync.Cond
	buf                         []byte
	delay                       time.Duration
	arrivedBytes                int  // bytes of buf that have arrived
	writeClosed                 bool // nothing more will be written
	eofArrived                  bool // the end of the stream has arrived
	abandoned                   bool // no reader is left
	readClosed                  bool // closed by its reader
	reset                       bool // a side vanished
	readDeadline, writeDeadline deadlineTimer
}

// deadlineTimer is a deadline of one side.
type deadlineTimer struct {
	timer   *time.Timer
	expired bool
}

func newByteStream(delay time.Duration) *byteStream {
	w := &byteStream{delay: delay}
	w.changed = sync.NewCond(&w.mu)
	return w
}

func (w *byteStream) readBytes(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		switch {
		case w.readClosed:
			return 0, net.ErrClosed
		case w.reset:
			return 0, errReset
		case w.readDeadline.expired:
			return 0, os.ErrDeadlineExceeded
		case w.arrivedBytes > 0 && len(b) > 0:
			n := copy(b, w.buf[:w.arrivedBytes])
			w.buf, w.arrivedBytes = w.buf[n:], w.arrivedBytes-n
			if len(w.buf) == 0 {
				w.buf = nil
			}
			w.changed.Broadcast()
			return n, nil
		case len(b) == 0:
			return 0, nil
		case w.eofArrived && len(w.buf) == 0:
			return 0, io.EOF
		}
		w.changed.Wait()
	}
}

func (w *byteStream) writeBytes(b []byte) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		switch {
		case w.writeClosed:
			return n, net.ErrClosed
		case w.reset:
			return n, errReset
		case w.abandoned:
			return n, &net.OpError{Op: "write", Net: "memory", Err: syscall.EPIPE}
		case w.writeDeadline.expired:
			return n, os.ErrDeadlineExceeded
		case len(b) == 0:
			return n, nil
		}
		if room := windowBytes - len(w.buf); room > 0 {
			k := min(room, len(b))
			w.buf = append(w.buf, b[:k]...)
			b, n = b[k:], n+k
			w.afterDelay(func() { w.arrivedBytes = min(w.arrivedBytes+k, len(w.buf)) })
			continue
		}
		w.changed.Wait()
	}
}

// closeWrite marks the end of the stream.
func (w *byteStream) closeWrite() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeClosed = true
	w.writeDeadline.stopTimer()
	w.afterDelay(func() { w.eofArrived = true })
}

// afterDelay applies an effect at the other side after the delay, with w.mu held then as now. What is written in one
// order arrives in that order: only the arrived length counts.
func (w *byteStream) afterDelay(f func()) {
	if w.delay <= 0 {
		f()
		w.changed.Broadcast()
		return
	}
	time.AfterFunc(w.delay, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		f()
		w.changed.Broadcast()
	})
}

// closeRead marks that no reader is left.
func (w *byteStream) closeRead() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.abandoned, w.readClosed, w.buf, w.arrivedBytes = true, true, nil, 0
	w.readDeadline.stopTimer()
	w.changed.Broadcast()
}

func (w *byteStream) setDeadline(l *deadlineTimer, t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.setDeadline(t, &w.mu, w.changed)
}

// setDeadline replaces the deadline; mu must be held, and guards it.
func (l *deadlineTimer) setDeadline(t time.Time, mu *sync.Mutex, news *sync.Cond) {
	l.stopTimer()
	l.expired = !t.IsZero() && !t.After(time.Now())
	if !t.IsZero() && !l.expired {
		var timer *time.Timer
		timer = time.AfterFunc(time.Until(t), func() {
			mu.Lock()
			defer mu.Unlock()
			if l.timer == timer {
				l.expired = true
				news.Broadcast()
			}
		})
		l.timer = timer
	}
	news.Broadcast()
}

func (l *deadlineTimer) stopTimer() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}
