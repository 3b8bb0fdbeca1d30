package http1

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// maxInlineBody is how much of a request body is written together with its head before the response is read, in
// bytes. A longer body is sent concurrently with reading the response.
const maxInlineBody = 32 << 10

// Transport carries requests on pooled connections, in the goroutine of the caller. Rare requests go to the
// http.Transport that it was created from, whose settings it uses.
type Transport struct {
	httpTransport *http.Transport
	singleSend    *SingleSendTransport
	hostConfigs   func() *HostTLSConfigs

	mu         sync.Mutex
	idleConns  map[connKey][]*pooledConn // by target; the most recently used at the end
	idleCount  int
	sweepTimer *time.Timer // nil while no connection is idle
}

type connKey struct{ scheme, host string }

// pooledConn is one connection.
type pooledConn struct {
	*readBufConn
	key       connKey
	idleSince time.Time
	reused    bool                 // it has carried a request before
	tlsState  *tls.ConnectionState // nil without TLS
	probe     idleProbe
}

// NewTransport creates a Transport with the settings of std: dialing, TLS, and the number and lifetime of idle
// connections. Proxies, cookies, HTTP/2 and compression are not supported.
func NewTransport(std *http.Transport) *Transport {
	named := sync.OnceValue(func() *HostTLSConfigs { return NewHostTLSConfigs(std.TLSClientConfig) })
	return &Transport{httpTransport: std, singleSend: NewSingleSendTransport(std), hostConfigs: named, idleConns: map[connKey][]*pooledConn{}}
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	return t.roundTrip(req, nil)
}

// roundTrip is RoundTrip with p observing the request if p is not nil.
func (t *Transport) roundTrip(req *http.Request, p ProgressObserver) (*http.Response, error) {
	if needsNetHTTP(req) {
		return t.singleSend.RoundTrip(withClientTrace(req, p))
	}
	connect := t.getConn
	if !isRepeatable(req) {
		connect = t.dialConn // a pooled connection may be closing, and the request cannot be sent twice
	}
	return t.roundTripOn(req, connect, p)
}

// roundTripOn sends a request on a connection that connect returns.
func (t *Transport) roundTripOn(req *http.Request, connect func(context.Context, connKey) (*pooledConn, error), p ProgressObserver) (*http.Response, error) {
	out := getOutput()
	defer putOutput(out)
	var err error
	var more *bodyRemainder
	if out.b, more, err = appendRequest(out.b, req); err != nil {
		return nil, err
	}
	at := connKey{req.URL.Scheme, req.URL.Host}
	var lost error // the error of the first attempt, during the second
	for {
		k, err := connect(req.Context(), at)
		if err != nil {
			more.closeBody()
			return nil, cmp.Or(lost, err)
		}
		resp, got, err := t.sendRequest(k, req, out.b, more, p)
		if err != nil && k.reused && req.Context().Err() == nil {
			if got == notSent {
				continue // the other side had closed it: nothing was sent
			}
			if got == closedUnread {
				lost, connect = err, t.dialConn
				if out.b, more, err = appendRequestAgain(out.b[:0], req); err == nil {
					continue
				}
				return nil, lost
			}
		}
		if got == notSent {
			more.closeBody()
		}
		return resp, err
	}
}

// Between the two steps in which a server closes a connection (its shutdown, and the close that answers unread bytes with a
// reset) its thread may lose the processor: llama.cpp's server ends a connection in this way after each stream.
const (
	resetWait = 50 * time.Millisecond // for the reset, after the end of the connection was read
	resetPoll = time.Millisecond
)

// wasClosedUnread is peerClosedUnread, and waits for the reset of a connection that carried requests before: its server may
// have closed it while the request was on its way. Without the wait, that is taken for the death of the worker.
func (k *pooledConn) wasClosedUnread() bool {
	for waited := time.Duration(0); !k.probe.peerClosedUnread(); waited += resetPoll {
		if !k.reused || waited >= resetWait {
			return false
		}
		time.Sleep(resetPoll)
	}
	return true
}

// isRepeatable reports whether a request can be sent a second time.
func isRepeatable(req *http.Request) bool {
	return req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
}

// appendRequestAgain is appendRequest for a second attempt.
func appendRequestAgain(b []byte, req *http.Request) ([]byte, *bodyRemainder, error) {
	again := *req
	if req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return b, nil, err
		}
		again.Body = body
	}
	return appendRequest(b, &again)
}

// CloseIdleConnections closes idle connections.
func (t *Transport) CloseIdleConnections() {
	t.httpTransport.CloseIdleConnections()
	t.singleSend.CloseIdleConnections()
	t.mu.Lock()
	defer t.mu.Unlock()
	for at, list := range t.idleConns {
		for _, k := range list {
			_ = k.conn.Close() // idle
		}
		delete(t.idleConns, at)
	}
	t.idleCount = 0
	if t.sweepTimer != nil {
		t.sweepTimer.Stop()
		t.sweepTimer = nil
	}
}

// needsNetHTTP reports whether a request must be sent by net/http.
func needsNetHTTP(req *http.Request) bool {
	if req.URL == nil || req.URL.Scheme != "http" && req.URL.Scheme != "https" || req.URL.Host == "" || req.URL.Opaque != "" ||
		req.Header == nil || req.Close || len(req.Trailer) > 0 || len(req.TransferEncoding) > 0 {
		return true
	}
	switch req.Method {
	case http.MethodPost, http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodPatch:
	default:
		return true
	}
	for _, name := range [...]string{"Expect", "Connection", "Upgrade", "Trailer", "Te", "Transfer-Encoding"} {
		if _, there := req.Header[name]; there {
			return true
		}
	}
	if req.Body == nil || req.Body == http.NoBody {
		return false
	}
	return req.ContentLength <= 0 || req.ContentLength > maxInlineBody && req.GetBody == nil // only bodies in memory can be rewound
}

// appendRequest writes a request with as much of its body as fits with the head. It closes the body unless
// there is more.
func appendRequest(b []byte, req *http.Request) (_ []byte, more *bodyRemainder, err error) {
	body := req.Body
	if body == nil {
		body = http.NoBody
	}
	defer func() {
		if more == nil {
			_ = body.Close() // it was read or is not needed
		}
	}()
	host := req.Host
	if host == "" {
		host = req.URL.Host
	}
	if !isPrintable(host) {
		return b, nil, errors.New("http1: invalid Host")
	}
	b = append(append(append(b, req.Method...), ' '), req.URL.RequestURI()...)
	b = append(append(append(b, " HTTP/1.1\r\nHost: "...), host...), "\r\n"...)
	if _, said := req.Header["User-Agent"]; !said {
		b = append(b, "User-Agent: Go-http-client/1.1\r\n"...)
	}
	for name, values := range req.Header {
		if name == "Host" || name == "Content-Length" {
			continue
		}
		if !isToken(name) {
			return b, nil, fmt.Errorf("http1: invalid header name %q", name)
		}
		for _, v := range values {
			v, ok := trimFieldValue(v)
			if !ok {
				return b, nil, fmt.Errorf("http1: invalid value of header %s", name)
			}
			b = append(append(append(append(b, name...), ": "...), v...), "\r\n"...)
		}
	}
	n := max(req.ContentLength, 0)
	if body == http.NoBody {
		n = 0
	}
	if n > 0 || req.Method != http.MethodGet && req.Method != http.MethodDelete {
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), n, 10), "\r\n"...)
	}
	b = append(b, "\r\n"...)
	if n == 0 {
		return b, nil, nil
	}
	head, now := len(b), int(min(n, maxInlineBody))
	if need := head + now; cap(b) < need {
		b = append(make([]byte, 0, need), b...)
	}
	b = b[:head+now]
	if _, err := io.ReadFull(body, b[head:]); err != nil {
		return b, nil, fmt.Errorf("http1: reading the request's body: %w", err)
	}
	if n > maxInlineBody {
		more = &bodyRemainder{body: body, remaining: n - maxInlineBody}
	}
	return b, more, nil
}

// getConn takes an idle connection or dials a new one.
func (t *Transport) getConn(ctx context.Context, at connKey) (*pooledConn, error) {
	for {
		k := t.popIdle(at)
		if k == nil {
			return t.dialConn(ctx, at)
		}
		if k.probe.isSilent() {
			return k, nil
		}
		_ = k.conn.Close() // closed by the other side, or it sent unrequested bytes
	}
}

func (t *Transport) popIdle(at connKey) *pooledConn {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.idleConns[at]
	if len(list) == 0 {
		return nil
	}
	k := list[len(list)-1]
	list[len(list)-1] = nil
	t.idleConns[at] = list[:len(list)-1]
	t.idleCount--
	return k
}

func (t *Transport) dialConn(ctx context.Context, at connKey) (*pooledConn, error) {
	addr := dialAddress(at)
	var c net.Conn
	var err error
	switch {
	case at.scheme == "http":
		c, err = t.httpTransport.DialContext(ctx, "tcp", addr)
	case t.httpTransport.DialTLSContext != nil:
		c, err = t.httpTransport.DialTLSContext(ctx, "tcp", addr)
	default:
		c, err = t.dialTLS(ctx, addr)
	}
	if err != nil {
		return nil, err
	}
	c = MakeLendable(c)
	k := &pooledConn{readBufConn: newReadBufConn(c), key: at, probe: newIdleProbe(c)}
	if k.tls != nil {
		state := k.tls.ConnectionState()
		k.tlsState = &state
		shrinkTLSBuffers(k.tls, 0)
	}
	return k, nil
}

func dialAddress(at connKey) string {
	u := url.URL{Host: at.host}
	port := u.Port()
	switch {
	case port != "":
	case at.scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

func (t *Transport) dialTLS(ctx context.Context, addr string) (net.Conn, error) {
	raw, err := t.httpTransport.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(addr) // addr was made by JoinHostPort
	c := tls.Client(MakeLendable(raw), t.hostConfigs().ConfigFor(host))
	if d := t.httpTransport.TLSHandshakeTimeout; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	if err := c.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // the handshake error is more useful
		return nil, err
	}
	return c, nil
}

// reclaimConn takes the connection back from a loop, if one has it. It returns false if it was closed.
func (k *pooledConn) reclaimConn() bool {
	lent := k.lentToLoop
	if !k.readBufConn.reclaimDescriptor() {
		return false
	}
	if lent {
		k.probe = newIdleProbe(k.conn)
	}
	return true
}

// putIdle returns a connection to the pool, within its limits.
func (t *Transport) putIdle(k *pooledConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.idleConns[k.key]) >= t.httpTransport.MaxIdleConnsPerHost || t.idleCount >= t.httpTransport.MaxIdleConns {
		_ = k.conn.Close() // the pool is full
		return
	}
	k.idleSince, k.reused = time.Now(), true
	t.idleConns[k.key] = append(t.idleConns[k.key], k)
	t.idleCount++
	if t.sweepTimer == nil {
		t.sweepTimer = time.AfterFunc(t.httpTransport.IdleConnTimeout/2, t.closeExpired)
	}
}

// closeExpired closes connections that were idle for too long.
func (t *Transport) closeExpired() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sweepTimer == nil {
		return
	}
	now := time.Now()
	for at, list := range t.idleConns {
		old := 0
		for old < len(list) && now.Sub(list[old].idleSince) > t.httpTransport.IdleConnTimeout {
			_ = list[old].conn.Close() // idle
			old++
		}
		if t.idleCount -= old; old == len(list) {
			delete(t.idleConns, at)
		} else if old > 0 {
			t.idleConns[at] = append([]*pooledConn(nil), list[old:]...)
		}
	}
	t.sweepTimer = nil
	if t.idleCount > 0 {
		t.sweepTimer = time.AfterFunc(t.httpTransport.IdleConnTimeout/2, t.closeExpired)
	}
}

// sendRequest sends a request and reads the head of the response.
func (t *Transport) sendRequest(k *pooledConn, req *http.Request, out []byte, more *bodyRemainder, p ProgressObserver) (resp *http.Response, far sendResult, err error) {
	x := &exchange{transport: t, conn: k, ctx: req.Context(), progress: p}
	x.ongoing.Store(true)
	x.ctxHook.WatchContext(x.ctx, x)
	n, err := k.conn.Write(out)
	if err != nil && n == 0 {
		x.finishExchange(false)
		return nil, notSent, x.preferContextCause(err)
	}
	sent := err // a response may have come all the same
	switch x.bodyRest = more; {
	case sent != nil:
		more.closeBody()
	case more != nil:
		more.sendAsync(k.conn, p)
	default:
		reportSent(p)
	}
	return t.awaitResponse(x, req, sent)
}

// awaitResponse reads the head of the response. sent is the error of the write.
func (t *Transport) awaitResponse(x *exchange, req *http.Request, sent error) (resp *http.Response, far sendResult, err error) {
	k := x.conn
	resp, err = x.readResponseHead(req)
	if err != nil {
		if !x.responseStarted && (err == io.EOF && k.wasClosedUnread() || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)) {
			far = closedUnread
		}
		x.finishExchange(false)
		if sent != nil {
			err = sent
		}
		return nil, far, x.preferContextCause(err)
	}
	x.closeAfter = x.closeAfter || sent != nil
	resp.TLS = k.tlsState
	return resp, maybeProcessed, nil
}
