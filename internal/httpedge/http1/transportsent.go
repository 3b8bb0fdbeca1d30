package http1

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
)

// RoundTripSent implements SentRoundTripper: it is RoundTrip from the moment on at which req was written. If the upstream
// has closed the connection without reading the request, it is sent again, as RoundTrip does.
func (t *Transport) RoundTripSent(req *http.Request, s *SentRequest) (*http.Response, error) {
	if !s.hasConn {
		return nil, s.err
	}
	conn, err := fileConn(s.fd)
	if err != nil {
		return nil, err
	}
	at := connKey{req.URL.Scheme, req.URL.Host}
	under := conn
	if s.err != nil {
		conn = &failedConn{Conn: conn, err: s.err}
	} else {
		conn = MakeLendable(conn)
	}
	k := &pooledConn{readBufConn: newReadBufConn(conn), key: at, reused: s.reused, probe: newIdleProbe(under)}
	k.preloadBytes(s.read)
	x := &exchange{transport: t, conn: k, ctx: req.Context()}
	x.ongoing.Store(true)
	x.ctxHook.WatchContext(x.ctx, x)
	if len(s.unsent) > 0 && s.err == nil {
		x.bodyRest = &bodyRemainder{body: io.NopCloser(bytes.NewReader(s.unsent)), remaining: int64(len(s.unsent))}
		x.bodyRest.sendAsync(k.conn, nil)
	}
	resp, got, err := t.awaitResponse(x, req, nil)
	if err == nil || got != closedUnread || !k.reused || req.Context().Err() != nil {
		return resp, err
	}
	lost := err
	if resp, err = t.roundTripOn(req, t.dialConn, nil); err != nil {
		err = cmp.Or(lost, err)
	}
	return resp, err
}
