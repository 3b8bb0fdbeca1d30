package http1

import (
	"io"
	"net"
	"sync/atomic"
)

// bodyRemainder is the rest of a request body, sent while the response is awaited: the other side may respond
// before it has read everything, and then read no more. A nil bodyRemainder is empty.
type bodyRemainder struct {
	body      io.ReadCloser
	remaining int64
	sentAll   atomic.Bool // all of it was sent
}

// sendAsync sends the rest on its own goroutine and reports its completion to p. Closing the connection ends
// it.
func (r *bodyRemainder) sendAsync(c net.Conn, p ProgressObserver) {
	go func() {
		defer func() {
			r.closeBody()
			r.body = nil // the exchange may live much longer
		}()
		buf := getBuffer(false)
		defer putBuffer(buf)
		for r.remaining > 0 {
			n, err := r.body.Read((*buf)[:min(r.remaining, readBufferBytes)])
			if _, werr := c.Write((*buf)[:n]); werr != nil {
				return // the response or the end of the connection shows the cause
			}
			if r.remaining -= int64(n); err != nil && r.remaining > 0 {
				abortConn(c) // the request can no longer be complete
				return
			}
		}
		r.sentAll.Store(true)
		reportSent(p)
	}()
}

// isSent reports whether all of it was sent. Until then the connection cannot be reused.
func (r *bodyRemainder) isSent() bool { return r == nil || r.sentAll.Load() }

func (r *bodyRemainder) closeBody() {
	if r != nil {
		_ = r.body.Close() // it was read or is not needed
	}
}
