package wire

import (
	"io"
	"net"
	"sync/atomic"
)

// rest is what is left of a request's body, which is sent while the answer is waited for: the other side may answer before
// it has read everything, and read no more. A nil rest is nothing.
type rest struct {
	body io.ReadCloser
	left int64
	done atomic.Bool // all of it was sent
}

// send sends it, on a goroutine of its own, and reports to p that all is sent. Whoever closes the connection ends that.
func (r *rest) send(c net.Conn, p Progress) {
	go func() {
		defer func() {
			r.close()
			r.body = nil // the exchange may live much longer
		}()
		buf := getBuffer(false)
		defer putBuffer(buf)
		for r.left > 0 {
			n, err := r.body.Read((*buf)[:min(r.left, bufferBytes)])
			if _, werr := c.Write((*buf)[:n]); werr != nil {
				return // the answer says why, or the end of the connection
			}
			if r.left -= int64(n); err != nil && r.left > 0 {
				abort(c) // it can never be whole
				return
			}
		}
		r.done.Store(true)
		reportSent(p)
	}()
}

// sent says that all of it was sent. While it is not, the connection is not free for anything else.
func (r *rest) sent() bool { return r == nil || r.done.Load() }

func (r *rest) close() {
	if r != nil {
		_ = r.body.Close() // it was read, or nobody wants it
	}
}
