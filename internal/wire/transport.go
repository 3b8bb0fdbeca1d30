package wire

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
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spillway-lb/spillway/internal/lifetime"
)

// maxInline is how much of a request's body is written in one go with its head, before the answer is looked at, in bytes.
// What is longer is written beside that.
const maxInline = 32 << 10

// Transport carries requests on connections that it keeps, in the goroutine of the caller. What is rare goes to the
// http.Transport that it was made over, whose settings it takes.
type Transport struct {
	std   *http.Transport
	named func() *NamedConfigs

	mu     sync.Mutex
	idle   map[place][]*kept // by where they lead, the one that was used last at the end
	idles  int
	sweeps *time.Timer // nil while nothing is idle
}

type place struct{ scheme, host string }

// kept is one connection.
type kept struct {
	*link
	at    place
	since time.Time
	used  bool                 // it has carried a request before
	peer  *tls.ConnectionState // nil without TLS
	peek  peek
}

// Over makes a Transport with the settings of std: how to dial, TLS, and how many connections are kept for how long.
// Proxies, cookies, HTTP/2 and compression are not among them.
func Over(std *http.Transport) *Transport {
	named := sync.OnceValue(func() *NamedConfigs { return Named(std.TLSClientConfig) })
	return &Transport{std: std, named: named, idle: map[place][]*kept{}}
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	return t.roundTrip(req, nil)
}

// roundTrip is RoundTrip with p observing the request, where p is not nil.
func (t *Transport) roundTrip(req *http.Request, p Progress) (*http.Response, error) {
	if rare(req) {
		return t.std.RoundTrip(traced(req, p))
	}
	out := getOutput()
	defer putOutput(out)
	var err error
	var more *rest
	if out.b, more, err = appendRequest(out.b, req); err != nil {
		return nil, err
	}
	at := place{req.URL.Scheme, req.URL.Host}
	connect := t.connect
	if !repeatable(req) {
		connect = t.dial // a connection that is kept may be closing, and there would be no second time
	}
	var lost error // of the first time, when this is the second
	for {
		k, err := connect(req.Context(), at)
		if err != nil {
			more.close()
			return nil, cmp.Or(lost, err)
		}
		resp, got, err := t.exchange(k, req, out.b, more, p)
		if err != nil && k.used && req.Context().Err() == nil {
			if got == gotNothing {
				continue // the other side had closed it: nothing was sent
			}
			if got == gotEnd {
				lost, connect = err, t.dial
				if out.b, more, err = appendAgain(out.b[:0], req); err == nil {
					continue
				}
				return nil, lost
			}
		}
		if got == gotNothing {
			more.close()
		}
		return resp, err
	}
}

// repeatable says that a request can be sent a second time.
func repeatable(req *http.Request) bool {
	return req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
}

// appendAgain is appendRequest for a second time.
func appendAgain(b []byte, req *http.Request) ([]byte, *rest, error) {
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

// CloseIdleConnections closes what is kept and not in use.
func (t *Transport) CloseIdleConnections() {
	t.std.CloseIdleConnections()
	t.mu.Lock()
	defer t.mu.Unlock()
	for at, list := range t.idle {
		for _, k := range list {
			_ = k.conn.Close() // nobody uses it
		}
		delete(t.idle, at)
	}
	t.idles = 0
	if t.sweeps != nil {
		t.sweeps.Stop()
		t.sweeps = nil
	}
}

// rare says that a request is not of the shape that is carried here.
func rare(req *http.Request) bool {
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
	return req.ContentLength <= 0 || req.ContentLength > maxInline && req.GetBody == nil // which only those in memory have
}

// appendRequest writes a request, with as much of its body as goes with the head. The body is closed, unless there is more
// of it.
func appendRequest(b []byte, req *http.Request) (_ []byte, more *rest, err error) {
	body := req.Body
	if body == nil {
		body = http.NoBody
	}
	defer func() {
		if more == nil {
			_ = body.Close() // it was read, or nobody wants it
		}
	}()
	host := req.Host
	if host == "" {
		host = req.URL.Host
	}
	if !printable(host) {
		return b, nil, errors.New("wire: invalid Host")
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
		if !token(name) {
			return b, nil, fmt.Errorf("wire: invalid header name %q", name)
		}
		for _, v := range values {
			v, ok := content(v)
			if !ok {
				return b, nil, fmt.Errorf("wire: invalid value of header %s", name)
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
	head, now := len(b), int(min(n, maxInline))
	if need := head + now; cap(b) < need {
		b = append(make([]byte, 0, need), b...)
	}
	b = b[:head+now]
	if _, err := io.ReadFull(body, b[head:]); err != nil {
		return b, nil, fmt.Errorf("wire: reading the request's body: %w", err)
	}
	if n > maxInline {
		more = &rest{body: body, left: n - maxInline}
	}
	return b, more, nil
}

// connect takes a connection that is kept, or makes one.
func (t *Transport) connect(ctx context.Context, at place) (*kept, error) {
	for {
		k := t.pop(at)
		if k == nil {
			return t.dial(ctx, at)
		}
		if k.peek.silent() {
			return k, nil
		}
		_ = k.conn.Close() // the other side has done so, or says what nobody asked
	}
}

func (t *Transport) pop(at place) *kept {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.idle[at]
	if len(list) == 0 {
		return nil
	}
	k := list[len(list)-1]
	list[len(list)-1] = nil
	t.idle[at] = list[:len(list)-1]
	t.idles--
	return k
}

func (t *Transport) dial(ctx context.Context, at place) (*kept, error) {
	addr := hostPort(at)
	var c net.Conn
	var err error
	switch {
	case at.scheme == "http":
		c, err = t.std.DialContext(ctx, "tcp", addr)
	case t.std.DialTLSContext != nil:
		c, err = t.std.DialTLSContext(ctx, "tcp", addr)
	default:
		c, err = t.dialTLS(ctx, addr)
	}
	if err != nil {
		return nil, err
	}
	c = Lendable(c)
	k := &kept{link: newLink(c), at: at, peek: newPeek(c)}
	if k.tls != nil {
		state := k.tls.ConnectionState()
		k.peer = &state
		lean(k.tls, 0)
	}
	return k, nil
}

func hostPort(at place) string {
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
	raw, err := t.std.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(addr) // it was joined
	c := tls.Client(Lendable(raw), t.named().Of(host))
	if d := t.std.TLSHandshakeTimeout; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	if err := c.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // the handshake's error says more
		return nil, err
	}
	return c, nil
}

// land takes the connection back from a loop, if one has it; false when it was closed.
func (k *kept) land() bool {
	lent := k.lent
	if !k.link.land() {
		return false
	}
	if lent {
		k.peek = newPeek(k.conn)
	}
	return true
}

// keep puts a connection back, within the bounds.
func (t *Transport) keep(k *kept) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.idle[k.at]) >= t.std.MaxIdleConnsPerHost || t.idles >= t.std.MaxIdleConns {
		_ = k.conn.Close() // there are enough
		return
	}
	k.since, k.used = time.Now(), true
	t.idle[k.at] = append(t.idle[k.at], k)
	t.idles++
	if t.sweeps == nil {
		t.sweeps = time.AfterFunc(t.std.IdleConnTimeout/2, t.sweep)
	}
}

// sweep closes what has been idle for too long.
func (t *Transport) sweep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sweeps == nil {
		return
	}
	now := time.Now()
	for at, list := range t.idle {
		old := 0
		for old < len(list) && now.Sub(list[old].since) > t.std.IdleConnTimeout {
			_ = list[old].conn.Close() // nobody uses it
			old++
		}
		if t.idles -= old; old == len(list) {
			delete(t.idle, at)
		} else if old > 0 {
			t.idle[at] = append([]*kept(nil), list[old:]...)
		}
	}
	t.sweeps = nil
	if t.idles > 0 {
		t.sweeps = time.AfterFunc(t.std.IdleConnTimeout/2, t.sweep)
	}
}

// exchange is one request and its answer on one connection.
type exchange struct {
	t       *Transport
	k       *kept
	ctx     context.Context
	stop    lifetime.Hook // the watch over ctx, which closes the connection
	resp    http.Response
	body    responseBody
	ongoing atomic.Bool // until the connection is given back or closed
	close   bool
	heard   bool     // a byte of the answer has come
	more    *rest    // of the request's body; nil when there is none
	watcher Progress // observes the request; nil when none does
}

// got is how far an exchange that failed has come.
type got uint8

const (
	gotSomething got = iota // of the answer, or the connection was not closed by the other side
	gotNothing              // the other side cannot have seen the request
	gotEnd                  // the other side closed the connection before any byte of the answer, and without reading the request
)

// exchange sends a request and reads the answer's head.
func (t *Transport) exchange(k *kept, req *http.Request, out []byte, more *rest, p Progress) (resp *http.Response, far got, err error) {
	x := &exchange{t: t, k: k, ctx: req.Context(), watcher: p}
	x.ongoing.Store(true)
	x.stop.Watch(x.ctx, x)
	n, err := k.conn.Write(out)
	if err != nil && n == 0 {
		x.end(false)
		return nil, gotNothing, x.reason(err)
	}
	sent := err // it may have been answered all the same
	switch x.more = more; {
	case sent != nil:
		more.close()
	case more != nil:
		more.send(k.conn, p)
	default:
		reportSent(p)
	}
	resp, err = x.read(req)
	if err != nil {
		if !x.heard && (err == io.EOF && k.peek.unread() || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)) {
			far = gotEnd
		}
		x.end(false)
		if sent != nil {
			err = sent
		}
		return nil, far, x.reason(err)
	}
	x.close = x.close || sent != nil
	resp.TLS = k.peer
	return resp, gotSomething, nil
}

// Ended implements lifetime.Ender.
func (x *exchange) Ended() { x.cut() }

// cut closes the connection under whoever waits for it.
func (x *exchange) cut() {
	if x.ongoing.CompareAndSwap(true, false) {
		abort(x.k.conn)
	}
}

// abort closes a connection at once: TLS would take time to say goodbye.
func abort(c net.Conn) {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	_ = c.Close() // that it was closed before is as good
}

// end gives the connection back when the exchange was whole, or closes it.
func (x *exchange) end(whole bool) {
	free := x.stop.Leave()
	if !x.ongoing.CompareAndSwap(true, false) {
		return
	}
	if whole && free && !x.close && x.more.sent() && x.k.land() {
		x.t.keep(x.k)
		return
	}
	abort(x.k.conn)
}

// reason is the context's error where that is why.
func (x *exchange) reason(err error) error {
	if x.ctx.Err() != nil {
		return context.Cause(x.ctx)
	}
	return err
}
