package http1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/testkit"
)

// relayHandler is a LoopHandler that relays to one upstream.
type relayHandler struct {
	upstream  string
	transport *Transport
	started   chan *relayExchange // the latest, while there is room
	blocked   atomic.Int64        // SetClientBlocked(true)
	completed atomic.Int64
	exits     sync.Map // LoopExit -> *atomic.Int64
}

type relayExchange struct {
	handler *relayHandler
	ref     LoopRef
	path    string
	body    []byte
	left    chan HandOver // Continue was called
	resumed int
}

func (h *relayHandler) StartRequest(r *LoopRequest) (LoopExchange, LoopAction) {
	x := &relayExchange{handler: h, path: string(r.Path), ref: r.Ref(), left: make(chan HandOver, 1)}
	switch x.path {
	case "/declined":
		return nil, LoopDecline
	case "/own":
		r.OwnBody()
	}
	x.body = r.Body
	defer func() {
		select {
		case h.started <- x:
		default:
		}
	}()
	switch x.path {
	case "/decided":
		return x, LoopContinue
	case "/late":
		r.WaitUntil = r.Now.Add(20 * time.Millisecond)
		return x, LoopWait
	case "/waits":
		return x, LoopWait
	}
	r.Upstream = h.upstream
	r.Out = append(append(append(r.Out, "POST "...), r.Path...), " HTTP/1.1\r\n"...)
	for _, line := range r.Lines {
		if !line.Framing || line.Is("host") {
			r.Out = append(r.Out, line.Line...)
		}
	}
	r.Out = append(strconv.AppendInt(append(r.Out, "Content-Length: "...), int64(len(r.Body)), 10), "\r\n\r\n"...)
	r.Out = append(r.Out, r.Body...)
	return x, LoopSend
}

// Resume sends the request that StartRequest has kept.
func (x *relayExchange) Resume(r *LoopRequest) LoopAction {
	x.resumed++
	if x.path == "/waits" && x.resumed == 1 {
		return LoopWait
	}
	r.Upstream = x.handler.upstream
	r.Out = append(strconv.AppendInt(append(r.Out, "POST /x HTTP/1.1\r\nHost: a.b:80\r\nContent-Length: "...), int64(len(x.body)), 10), "\r\n\r\n"...)
	r.Out = append(r.Out, x.body...)
	return LoopSend
}

func (x *relayExchange) AcceptAnswer(a *LoopAnswer, out []byte) ([]byte, bool, bool) {
	if a.Status != http.StatusOK {
		return out, false, false
	}
	out = append(out, "HTTP/1.1 200 OK\r\n"...)
	for _, line := range a.Lines {
		if !line.Framing {
			out = append(out, line.Line...)
		}
	}
	return out, a.ContentLength >= 0, true
}

func (x *relayExchange) PassChunk(p []byte, _ time.Time) ([]byte, bool) { return p, true }
func (x *relayExchange) EndBody() ([]byte, bool)                        { return nil, true }
func (x *relayExchange) Complete(time.Time)                             { x.handler.completed.Add(1) }

func (x *relayExchange) SetClientBlocked(on bool) {
	if on {
		x.handler.blocked.Add(1)
	}
}

func (x *relayExchange) Continue(w http.ResponseWriter, r *http.Request, at HandOver) {
	defer func() { x.left <- at }()
	if at.Begun {
		panic(http.ErrAbortHandler)
	}
	req, err := http.NewRequestWithContext(r.Context(), r.Method, "http://"+x.handler.upstream+r.RequestURI, bytes.NewReader(x.body))
	if err != nil {
		panic(err)
	}
	maps.Copy(req.Header, r.Header)
	req.Host = r.Host
	req.Header.Del("Connection")
	if req.Header["User-Agent"] == nil {
		req.Header["User-Agent"] = nil
	}
	var resp *http.Response
	if at.Sent != nil {
		resp, err = x.handler.transport.RoundTripSent(req, at.Sent)
	} else {
		resp, err = x.handler.transport.RoundTrip(req)
	}
	if err != nil {
		http.Error(w, "no answer", http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	maps.Copy(w.Header(), resp.Header)
	announced := maps.Clone(resp.Trailer)
	for name := range announced {
		w.Header().Add("Trailer", name)
	}
	w.WriteHeader(resp.StatusCode)
	_, err = io.Copy(w, resp.Body)
	for name, values := range resp.Trailer {
		if _, ok := announced[name]; !ok {
			name = http.TrailerPrefix + name
		}
		w.Header()[name] = values
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// exitCount returns how many requests left the loop for a reason.
func (h *relayHandler) exitCount(why LoopExit) int64 {
	n, _ := h.exits.LoadOrStore(why, new(atomic.Int64))
	return n.(*atomic.Int64).Load()
}

// startLoopServer starts a server with a request loop that relays to upstream.
func startLoopServer(t *testing.T, std *http.Server, upstream string) (string, *relayHandler, *Server) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &relayHandler{upstream: upstream, transport: newTestTransport(t, nil), started: make(chan *relayExchange, 64)}
	s := NewServer(std, nil)
	s.SetLoop(&LoopConfig{
		Handler: h, WriteTimeout: time.Minute, AnswerTimeout: time.Minute,
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		},
		OnHandOver: func(why LoopExit) {
			n, _ := h.exits.LoadOrStore(why, new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
		},
	})
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve returned %v", err)
		}
	})
	return l.Addr().String(), h, s
}

func rawPost(path, more, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a.b:80\r\n%sContent-Length: %d\r\n\r\n%s", path, more, len(body), body)
}

// TestLoopAnswersAsNetHTTP: a server whose requests are relayed by a loop gives the answers of net/http, to plain requests
// and to those that leave the loop at any point; the connection continues or ends as with net/http.
func TestLoopAnswersAsNetHTTP(t *testing.T) {
	quiet := func() *http.Server {
		return &http.Server{Handler: http.HandlerFunc(serveByPath), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 32 << 10, ErrorLog: discardLog}
	}
	theirs := httptest.NewUnstartedServer(nil)
	theirs.Config = quiet()
	theirs.Start()
	defer theirs.Close()
	ours, h, _ := startLoopServer(t, quiet(), theirs.Listener.Addr().String())
	post := rawPost
	for _, text := range []string{
		post("/x", "X-Mine: 1\r\nx-mine:2  \r\n", "hello"), post("/x?a=b%20c", "", "hello"), post("/own", "X-Mine: 1\r\n", "hello") + post("/own", "", "again"),
		post("/x", "", "one") + post("/y", "", "two") + post("/declined", "", "three") + post("/x", "", "four"), post("/decided", "", "one") + post("/x", "", "two"),
		post("/none", "", "a") + post("/x", "", "after"), post("/stream", "", "a") + post("/x", "", "after"),
		post("/short", "", "a") + post("/short", "", "b") + post("/x", "", "after"),
		post("/large", "", "a") + post("/x", "", "after"),
		post("/x", "Connection: close\r\n", "a") + post("/x", "", "after"),
		post("/inject", "", "a"), post("/abort", "", "a"), post("/empty", "", "a"), post("/x", "", strings.Repeat("c", 100_000)) + post("/x", "", "after"),
		post("/x", "", strings.Repeat("c", 300_000)) + post("/x", "", "after"), post("/x", "", "") + post("/x", "", "after"),
		"GET / HTTP/1.0\r\n\r\n", "HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST http://other/x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nz", "POST //other/x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nz",
		"POST /%zz HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nz", "POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nz",
		"POST / HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 1\r\n\r\nz", "POST / HTTP/1.1\r\nHost: a/b\r\nContent-Length: 1\r\n\r\nz",
		"POST / HTTP/1.1\nHost: a\nContent-Length: 1\n\nz", "POST / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\nContent-Length: 1\r\n\r\nz",
		"POST / HTTP/1.1\r\nHost: a\r\nX : b\r\nContent-Length: 1\r\n\r\nz", "POST / HTTP/1.1\r\nHost: a\r\nX: b\x00c\r\nContent-Length: 1\r\n\r\nz",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nz", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nzz",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nz", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\nz", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\nz",
		post("/x", "Transfer-Encoding: chunked\r\n", "0\r\n\r\n"), post("/x", "Transfer-Encoding: identity\r\n", "a"), post("/x", "Transfer-Encoding : chunked\r\n", "a"),
		"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + post("/y", "", "after"),
		post("/x", "Expect: 100-continue\r\n", "hello"), post("/x", "Expect: other\r\n", "hello"), post("/x", "Pragma: no-cache\r\n", "hello"),
		post("/x", "Trailer: X-A\r\n", "hello"), post("/x", "Upgrade: h2c\r\nConnection: Upgrade\r\n", "hello"),
		"\r\n\r\n" + post("/x", "", "a"), post("/x", "X: "+strings.Repeat("x", 20_000)+"\r\n", "a"), post("/x", "X: "+strings.Repeat("x", 50_000)+"\r\n", "a"),
		post("/x", strings.Repeat("X: y\r\n", 200), "a"), "garbage\r\n\r\n", post("/x", "", "a") + "POST / HTTP/1.1\nHost: a\n\n" + post("/x", "", "after"),
		strings.Repeat(post("/x", "", "pipelined"), 20),
	} {
		got, want := sendRaw(t, ours, text), sendRaw(t, theirs.Listener.Addr().String(), text)
		want = strings.ReplaceAll(want, "Connection:[close] ", "") // not forwarded
		if got != want {
			t.Errorf("%.200q\ngot  %.800s\nwant %.800s", text, got, want)
		}
	}
	if n := h.completed.Load(); n < 30 {
		t.Errorf("the loop has completed %d requests only", n)
	}
	for _, why := range []LoopExit{ExitSyntax, ExitDeclined, ExitDecided, ExitAnswer, ExitBroken} {
		if h.exitCount(why) == 0 {
			t.Errorf("no request left the loop because of %s", why)
		}
	}
}

// TestLoopReadsRequestsInPieces: pieces of a body are joined on the loop, a late body and a head in pieces are left to a
// goroutine, and the answers are the same.
func TestLoopReadsRequestsInPieces(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(serveByPath))
	defer up.Close()
	addr, _, _ := startLoopServer(t, &http.Server{Handler: http.HandlerFunc(serveByPath), ErrorLog: discardLog}, up.Listener.Addr().String())
	text := rawPost("/x", "X-Mine: 1\r\n", strings.Repeat("body ", 2000))
	want := sendRaw(t, addr, text)
	for _, cuts := range [][]int{{10}, {60}, {61, 100, 5000}, {len(text) - 1}, {20, 60, 63, 70, 9000}} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		from := 0
		for _, cut := range append(cuts, len(text)) {
			_, _ = io.WriteString(c, text[from:cut])
			from = cut
			<-time.After(2 * time.Millisecond) // most pieces then arrive apart
		}
		_, _ = io.WriteString(c, "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		b, err := io.ReadAll(c)
		if err != nil || !strings.Contains(string(b), "X-Seen: POST /x") || strings.Count(string(b), "HTTP/1.1 200 OK") != 2 {
			t.Errorf("cut at %v: %.300q, %v; whole: %.100s", cuts, b, err, want)
		}
		_ = c.Close()
	}
}

// TestLoopWaitsForSlowClients: nothing is read from the upstream while the client does not read, and all bytes arrive.
func TestLoopWaitsForSlowClients(t *testing.T) {
	const size = 16 << 20
	for _, chunked := range []bool{false, true} {
		up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if !chunked {
				w.Header().Set("Content-Length", strconv.Itoa(size))
			}
			piece := bytes.Repeat([]byte("0123456789abcdef"), 4096)
			for range size / len(piece) {
				_, _ = w.Write(piece)
			}
		}))
		defer up.Close()
		addr, h, _ := startLoopServer(t, &http.Server{Handler: http.HandlerFunc(serveByPath), ErrorLog: discardLog}, up.Listener.Addr().String())
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, rawPost("/x", "", "a"))
		testkit.Eventually(t, "the answer waits for its client", func() bool { return h.blocked.Load() > 0 })
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil || len(b) != size || !bytes.Equal(b[size-16:], []byte("0123456789abcdef")) {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		testkit.Eventually(t, "the exchange completes", func() bool { return h.completed.Load() == 1 })
	}
}

// holdUpstream answers each request with the head and the first piece, and then waits for release.
func holdUpstream(t *testing.T) (addr string, release func()) {
	free := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path != "/silent" {
			_, _ = io.WriteString(w, "first ")
			w.(http.Flusher).Flush()
		}
		select {
		case <-free:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, "last")
	}))
	release = sync.OnceFunc(func() { close(free) })
	t.Cleanup(func() { release(); up.Close() })
	return up.Listener.Addr().String(), release
}

// TestLoopHandsOverClientsThatLeave: in any state of the request, the exchange continues on a goroutine whose request is
// cancelled.
func TestLoopHandsOverClientsThatLeave(t *testing.T) {
	up, _ := holdUpstream(t)
	addr, h, _ := startLoopServer(t, &http.Server{Handler: http.HandlerFunc(serveByPath), ErrorLog: discardLog}, up)
	for _, path := range []string{"/silent", "/x"} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, rawPost(path, "", "a"))
		x := <-h.started
		if path == "/x" {
			_, _ = io.ReadFull(c, make([]byte, 20))
		}
		_ = c.Close()
		at := <-x.left
		if at.Begun != (path == "/x") {
			t.Errorf("%s: %+v", path, at)
		}
	}
	if h.exitCount(ExitClient) != 2 {
		t.Errorf("%d left because of their clients", h.exitCount(ExitClient))
	}
}

// TestLoopAborts: Abort ends the attempt at any point, and has no effect on a request that is over.
func TestLoopAborts(t *testing.T) {
	up, release := holdUpstream(t)
	addr, h, _ := startLoopServer(t, &http.Server{Handler: http.HandlerFunc(serveByPath), ErrorLog: discardLog}, up)
	for _, path := range []string{"/silent", "/x"} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, rawPost(path, "", "a"))
		x := <-h.started
		if path == "/x" {
			_, _ = io.ReadFull(c, make([]byte, 20))
		}
		x.ref.Abort()
		at := <-x.left
		if at.Begun != (path == "/x") || at.Begun && at.Err != ErrAborted || !at.Begun && at.Sent.Cause() != ErrAborted {
			t.Errorf("%s: %+v", path, at)
		}
		_ = c.Close()
	}
	release()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	br := bufio.NewReader(c)
	for range 3 {
		_, _ = io.WriteString(c, rawPost("/x", "", "a"))
		x := <-h.started
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); string(b) != "first last" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		x.ref.Abort() // after the end
	}
	LoopRef{}.Abort()
}

// TestLoopResendsUnreadRequests: a request on a connection that the upstream has closed meanwhile is sent again.
func TestLoopResendsUnreadRequests(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var conns atomic.Int64
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Add(1)
			go func() {
				defer c.Close()
				req, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				_, _ = c.Read(make([]byte, 1)) // it ends with the next request unread
			}()
		}
	}()
	addr, h, _ := startLoopServer(t, &http.Server{Handler: http.HandlerFunc(serveByPath), ErrorLog: discardLog}, ln.Addr().String())
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	br := bufio.NewReader(c)
	for i := range 6 {
		_, _ = io.WriteString(c, rawPost("/x", "", "hello"))
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		if b, err := io.ReadAll(resp.Body); string(b) != "ok" || err != nil {
			t.Errorf("request %d: %q, %v", i, b, err)
		}
	}
	if n := conns.Load(); n < 4 || h.exitCount(ExitAnswer) == 0 {
		t.Errorf("%d connections, %d resent", n, h.exitCount(ExitAnswer))
	}
}

// TestLoopShutdownLetsAnswersFinish: Shutdown closes idle connections at once, lets an answer finish, and ends its
// connection with it.
func TestLoopShutdownLetsAnswersFinish(t *testing.T) {
	up, release := holdUpstream(t)
	addr, _, s := startLoopServer(t, &http.Server{Handler: http.HandlerFunc(serveByPath), ErrorLog: discardLog}, up)
	idle, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	busy, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	_, _ = io.WriteString(idle, rawPost("/declined", "", "a"))
	if _, err := http.ReadResponse(bufio.NewReader(idle), nil); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(busy, rawPost("/x", "", "a"))
	br := bufio.NewReader(busy)
	if _, err := br.Peek(20); err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- s.Shutdown(context.Background()) }()
	if _, err := idle.Read(make([]byte, 1024)); err != nil && err != io.EOF {
		t.Errorf("an idle connection: %v", err)
	}
	testkit.Eventually(t, "no connections are accepted", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	release()
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); string(b) != "first last" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// TestLoopKeepsWaitingRequests: a request that waits is sent when it is woken, is continued by a goroutine at its deadline or
// when its client leaves, and a late Wake has no effect.
func TestLoopKeepsWaitingRequests(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(serveByPath))
	defer up.Close()
	addr, h, _ := startLoopServer(t, &http.Server{Handler: http.HandlerFunc(serveByPath), ErrorLog: discardLog}, up.Listener.Addr().String())
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	br := bufio.NewReader(c)
	for _, path := range []string{"/waits", "/late", "/waits"} {
		_, _ = io.WriteString(c, rawPost(path, "", "hello"))
		x := <-h.started
		if path == "/waits" {
			x.ref.Wake() // Resume waits on
			x.ref.Wake()
		}
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); string(b) != "hello" || err != nil {
			t.Errorf("%s: %q, %v", path, b, err)
		}
		x.ref.Wake()
		if path == "/late" {
			<-x.left
		}
	}
	if n := h.completed.Load(); n != 2 {
		t.Errorf("the loop has completed %d, want 2", n)
	}
	_, _ = io.WriteString(c, rawPost("/waits", "", "hello"))
	x := <-h.started
	_ = c.Close()
	if at := <-x.left; at.Begun || at.Sent != nil || h.exitCount(ExitClient) != 1 {
		t.Errorf("%+v", at)
	}
	x.ref.Wake()
}

// TestLoopCannotReachUpstream: the goroutine gets the error of the dial.
func TestLoopCannotReachUpstream(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := ln.Addr().String()
	_ = ln.Close()
	addr, h, _ := startLoopServer(t, &http.Server{Handler: http.HandlerFunc(serveByPath), ErrorLog: discardLog}, gone)
	got := sendRaw(t, addr, rawPost("/x", "", "a")) + sendRaw(t, addr, rawPost("/x", "", "a"))
	if strings.Count(got, "|502") != 2 || h.exitCount(ExitUnsent) != 2 {
		t.Errorf("%s; %d unsent", got, h.exitCount(ExitUnsent))
	}
}

// TestLoopTakesConnectionsBack: a connection whose request was served by a goroutine returns to the loop, unless too many
// requests in a row are not for the loop.
func TestLoopTakesConnectionsBack(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(serveByPath))
	defer up.Close()
	addr, h, _ := startLoopServer(t, &http.Server{Handler: http.HandlerFunc(serveByPath), ErrorLog: discardLog}, up.Listener.Addr().String())
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	br := bufio.NewReader(c)
	for _, step := range []struct {
		path     string
		n        int
		complete int64
	}{{"/x", 2, 2}, {"/declined", 3, 2}, {"/x", 2, 4}, {"/decided", 5, 4}, {"/x", 1, 5}, {"/declined", 6, 5}, {"/x", 3, 5}} {
		for range step.n {
			_, _ = io.WriteString(c, rawPost(step.path, "", "a"))
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Fatal(err)
			}
		}
		if n := h.completed.Load(); n != step.complete {
			t.Fatalf("after %d of %s the loop has completed %d, want %d", step.n, step.path, n, step.complete)
		}
	}
}
