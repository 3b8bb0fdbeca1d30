package http1

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/spillway-lb/spillway/internal/httpedge/reqctx"
)

// exchange is one request and its response on one connection.
type exchange struct {
	transport       *Transport
	conn            *pooledConn
	ctx             context.Context
	ctxHook         reqctx.EndHook // closes the connection when ctx ends
	resp            http.Response
	body            responseBody
	ongoing         atomic.Bool // until the connection is given back or closed
	closeAfter      bool
	responseStarted bool             // a byte of the response has arrived
	bodyRest        *bodyRemainder   // of the request body; nil if there is none
	progress        ProgressObserver // nil if the request is not observed
}

// sendResult is how far a failed exchange got.
type sendResult uint8

const (
	maybeProcessed sendResult = iota // part of the response arrived, or the other side did not close the connection
	notSent                          // the other side cannot have read the request
	closedUnread                     // the other side closed the connection before any byte of the response, without reading the request
)

// EndRequest implements reqctx.EndHandler.
func (x *exchange) EndRequest() { x.abortExchange() }

// abortExchange closes the connection, which ends any wait on it.
func (x *exchange) abortExchange() {
	if x.ongoing.CompareAndSwap(true, false) {
		abortConn(x.conn.conn)
	}
}

// abortConn closes a connection at once, without the close_notify of TLS, which would take time.
func abortConn(c net.Conn) {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	_ = c.Close() // closing twice has no effect
}

// finishExchange returns the connection to the pool if the exchange is complete, else closes it.
func (x *exchange) finishExchange(whole bool) {
	free := x.ctxHook.StopWatching()
	if !x.ongoing.CompareAndSwap(true, false) {
		return
	}
	if whole && free && !x.closeAfter && x.bodyRest.isSent() && x.conn.reclaimConn() {
		x.transport.putIdle(x.conn)
		return
	}
	abortConn(x.conn.conn)
}

// preferContextCause returns the error of the context if the context caused err.
func (x *exchange) preferContextCause(err error) error {
	if x.ctx.Err() != nil {
		return context.Cause(x.ctx)
	}
	return err
}

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
