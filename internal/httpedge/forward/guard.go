package forward

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/http1"
)

const (
	// maxDrainBytes and drainTimeout bound what is read of a body after its request was refused.
	maxDrainBytes = 64 << 20
	drainTimeout  = 5 * time.Second
	// expectDrainTimeout is drainTimeout for a client that sent Expect: 100-continue and was not asked for its
	// body. It should send nothing.
	expectDrainTimeout = 250 * time.Millisecond
)

// GuardHandler wraps the handler of a public HTTP/1.1 listener.
//
// A refusal is written before the rest of the body is read; then the rest is read and discarded within limits.
// A client that reads only after it has sent everything would otherwise get a reset and never see the refusal.
// If unread bytes remain after that, the connection is closed, so that they cannot be parsed as another
// request. For the same reason a chunked body is the last on its connection: RFC 9112, 6.1 requires that of a
// request that also had a Content-Length, which net/http hides.
//
// Responses that may be written before the body is read need a Content-Length.
func GuardHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 || r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		if err := enableFullDuplex(w); err != nil { // a test writer
			next.ServeHTTP(w, r)
			return
		}
		if body, ok := r.Body.(eofBody); ok && len(r.TransferEncoding) == 0 {
			next.ServeHTTP(w, r)
			if !body.AtEOF() && !drainBody(body, w, drainTimeout) {
				AbortHandler()
			}
			return
		}
		if len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
			if KindOf(r) == GRPC { // the response may end before the request body, and no request follows
				next.ServeHTTP(w, r)
				_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainTimeout)) // the server reads the rest of the body
				http1.LingerAtClose(r)
				return
			}
		}
		body := &eofTrackingBody{ReadCloser: r.Body}
		inner := *r // the server inspects the body of r itself
		inner.Body = body
		next.ServeHTTP(w, &inner)
		within := drainTimeout
		if r.Header.Get("Expect") != "" && !body.readStarted.Load() {
			within = expectDrainTimeout
		}
		if !body.AtEOF() && !drainBody(body, w, within) {
			AbortHandler()
		}
	})
}

// eofBody is a body that can report whether it was read to its end.
type eofBody interface {
	io.ReadCloser
	AtEOF() bool
}

// enableFullDuplex does what http.ResponseController does, without allocating one if the writer is the server's
// own.
func enableFullDuplex(w http.ResponseWriter) error {
	if own, ok := w.(interface{ EnableFullDuplex() error }); ok {
		return own.EnableFullDuplex()
	}
	return http.NewResponseController(w).EnableFullDuplex()
}

// eofTrackingBody records whether a body was read to its end. Another goroutine than the handler may read it.
type eofTrackingBody struct {
	io.ReadCloser
	reachedEOF, readStarted atomic.Bool
}

func (b *eofTrackingBody) Read(p []byte) (int, error) {
	b.readStarted.Store(true)
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.reachedEOF.Store(true)
	}
	return n, err
}

// AtEOF reports whether the body was read to its end.
func (b *eofTrackingBody) AtEOF() bool { return b.reachedEOF.Load() }

// drainBody reads the rest of a body. It returns true if it reached the end. Otherwise the read deadline stays
// set, so that no later read waits for the rest.
func drainBody(b eofBody, w http.ResponseWriter, within time.Duration) bool {
	rc := http.NewResponseController(w)
	if rc.SetReadDeadline(time.Now().Add(within)) != nil || rc.Flush() != nil {
		return false
	}
	_, _ = io.CopyN(io.Discard, b, maxDrainBytes) // only reaching the end matters
	return b.AtEOF() && rc.SetReadDeadline(time.Time{}) == nil
}
