package http1

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

// startServer starts a Server; secure gives it the certificate of httptest.
func startServer(t *testing.T, std *http.Server, secure bool) (addr string, s *Server) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = NewServer(std, nil)
	ended := make(chan error, 1)
	go func() {
		if secure {
			ended <- s.ServeTLS(l, "", "")
		} else {
			ended <- s.Serve(l)
		}
	}()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve returned %v", err)
		}
	})
	return l.Addr().String(), s
}

// sendRaw writes text and a last request, and returns the received bytes until the connection ends.
func sendRaw(t *testing.T, addr, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, text+"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	var out strings.Builder
	br := bufio.NewReader(c)
	for {
		var asked *http.Request
		if out.Len() == 0 && strings.HasPrefix(text, "HEAD ") {
			asked = &http.Request{Method: http.MethodHead}
		}
		resp, err := http.ReadResponse(br, asked)
		if err != nil {
			return out.String() + fmt.Sprint("|closed ", !errors.Is(err, timeoutOrOther(err)))
		}
		body, err := io.ReadAll(resp.Body)
		body = bytes.ReplaceAll(bytes.ReplaceAll(body, []byte("yyyyyyyyyy"), nil), []byte("cccccccccc"), nil)
		resp.Header.Del("Date")
		fmt.Fprintf(&out, "|%d %v %q %v %v %v %d", resp.StatusCode, resp.Header, body, err, resp.Trailer, resp.Close, resp.ContentLength)
	}
}

func timeoutOrOther(err error) error {
	var t net.Error
	if errors.As(err, &t) && t.Timeout() {
		return err
	}
	return errors.New("none")
}

// serveByPath is a handler that echoes what it received, and responds in the way that the path selects.
func serveByPath(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/unread" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	body, err := io.ReadAll(r.Body)
	h := w.Header()
	h.Set("X-Seen", fmt.Sprintf("%s %s %q %s %v %d %v %v %v", r.Method, r.URL, r.RequestURI, r.Host, r.Header, r.ContentLength, err, r.TransferEncoding, r.Proto))
	switch r.URL.Path {
	case "/none":
		w.WriteHeader(http.StatusNoContent)
	case "/stream":
		h.Set("Trailer", "X-End")
		h.Set("Content-Type", "text/event-stream")
		for range 3 {
			_, _ = io.WriteString(w, "data: x\n\n")
			w.(http.Flusher).Flush()
		}
		h.Set("X-End", "there")
		h.Set(http.TrailerPrefix+"X-More", "too")
	case "/short":
		h.Set("Trailer", "X-End")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write(body)
		h.Set("X-End", "there")
	case "/large":
		_, _ = w.Write(bytes.Repeat([]byte("y"), 100_000))
	case "/told":
		h.Set("Content-Length", "5")
		_, _ = io.WriteString(w, "hello")
		_, err := io.WriteString(w, "more")
		if !errors.Is(err, http.ErrContentLength) {
			panic(err)
		}
	case "/close":
		h.Set("Connection", "close")
	case "/inject":
		h.Set("X-A", "a\r\nX-B: b")
		h["X Bad"] = []string{"x"}
	case "/abort":
		_, _ = io.WriteString(w, "part")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	case "/early":
		h.Set("Link", "</x>")
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "<html>")
	case "/empty":
	default:
		_, _ = w.Write(body)
	}
}

// TestServerAnswersAsNetHTTP: for any input the responses equal those of net/http to the byte, and the
// connection continues or ends as with net/http.
func TestServerAnswersAsNetHTTP(t *testing.T) {
	quiet := func() *http.Server {
		return &http.Server{Handler: http.HandlerFunc(serveByPath), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 32 << 10, ErrorLog: discardLog}
	}
	ours, _ := startServer(t, quiet(), false)
	theirs := httptest.NewUnstartedServer(nil)
	theirs.Config = quiet()
	theirs.Start()
	defer theirs.Close()
	post := func(path, more, body string) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a.b:80\r\n%sContent-Length: %d\r\n\r\n%s", path, more, len(body), body)
	}
	var wg sync.WaitGroup
	for _, text := range []string{
		post("/x?a=b%20c", "X-Mine: 1\r\nx-mine:2  \r\n", "hello"),
		post("/x", "", "one") + post("/y", "", "two") + post("/none", "", ""),
		post("/stream", "", "a") + post("/x", "", "after"),
		post("/short", "", "a") + post("/short", "", "") + post("/x", "", "after"),
		post("/large", "", "a") + post("/x", "", "after"),
		post("/told", "", "a") + post("/x", "", "after"),
		post("/close", "", "a") + post("/x", "", "after"),
		post("/x", "Connection: close\r\n", "a") + post("/x", "", "after"),
		post("/inject", "", "a"), post("/abort", "", "a"), post("/early", "", "a"), post("/empty", "", "a"),
		post("/unread", "", strings.Repeat("b", 100_000)) + post("/x", "", "after"),
		post("/x", "", strings.Repeat("c", 100_000)) + "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET / HTTP/1.0\r\n\r\n", "HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET http://other/x HTTP/1.1\r\nHost: a\r\n\r\n", "GET //other/x HTTP/1.1\r\nHost: a\r\n\r\n", "GET x HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
		"GET / HTTP/1.1\nHost: a\n\n", "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nz", post("/x", "Transfer-Encoding: chunked\r\n", "0\r\n\r\n"),
		"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + post("/y", "", "after"),
		post("/x", "Expect: 100-continue\r\n", "hello"), post("/x", "Expect: other\r\n", "hello"), post("/x", "Pragma: no-cache\r\n", "hello"),
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 20_000) + "\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 50_000) + "\r\n\r\n", "garbage\r\n\r\n",
		post("/x", "", "a") + "GET / HTTP/1.1\nHost: a\n\n" + post("/x", "", "after"),
	} {
		wg.Go(func() {
			got, want := sendRaw(t, ours, text), sendRaw(t, theirs.Listener.Addr().String(), text)
			if got != want {
				t.Errorf("%.200q\ngot  %.800s\nwant %.800s", text, got, want)
			}
		})
	}
	wg.Wait()
}

// TestServerOverTLS: HTTP/1.1 on the fast path, HTTP/2 by net/http, many concurrent requests, and an error
// response to plaintext.
func TestServerOverTLS(t *testing.T) {
	certs := httptest.NewTLSServer(nil)
	defer certs.Close()
	addr, _ := startServer(t, &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			_, _ = fmt.Fprintf(w, "%d %v %d", r.ProtoMajor, r.TLS != nil, len(b))
		}),
		TLSConfig: &tls.Config{Certificates: certs.TLS.Certificates}, ErrorLog: discardLog,
	}, true)
	for _, two := range []bool{false, true} {
		tr := certs.Client().Transport.(*http.Transport).Clone()
		tr.ForceAttemptHTTP2 = two
		tr.TLSClientConfig.NextProtos = nil
		client := &http.Client{Transport: tr}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for _, n := range []int{0, 1, 3000, 10_000, 200_000} {
					resp, err := client.Post("https://"+addr, "text/plain", strings.NewReader(strings.Repeat("x", n)))
					if err != nil {
						t.Error(err)
						return
					}
					b, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					want := fmt.Sprintf("1 true %d", n)
					if two {
						want = fmt.Sprintf("2 true %d", n)
					}
					if string(b) != want || err != nil {
						t.Errorf("got %q, %v, want %q", b, err, want)
					}
				}
			})
		}
		wg.Wait()
		tr.CloseIdleConnections()
	}
	odd, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer odd.Close()
	_, _ = io.WriteString(odd, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\nx\r\n0\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(odd), nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); string(b) != "1 true 1" || err != nil {
		t.Errorf("an unusual request got %q, %v", b, err)
	}
	if got := sendRaw(t, addr, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); !strings.HasPrefix(got, "|400") {
		t.Errorf("plain HTTP got %s", got)
	}
}

// TestClientDisconnectCancelsRequest: also while no goroutine reads from the connection.
func TestClientDisconnectCancelsRequest(t *testing.T) {
	certs := httptest.NewTLSServer(nil)
	defer certs.Close()
	for _, secure := range []bool{false, true} {
		arrived, noticed := make(chan struct{}), make(chan struct{})
		addr, _ := startServer(t, &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadAll(r.Body)
				close(arrived)
				<-r.Context().Done()
				close(noticed)
			}),
			TLSConfig: &tls.Config{Certificates: certs.TLS.Certificates}, ErrorLog: discardLog,
		}, secure)
		var c net.Conn
		var err error
		if secure {
			c, err = tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
		} else {
			c, err = net.Dial("tcp", addr)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx")
		<-arrived
		_ = c.Close()
		select {
		case <-noticed:
		case <-time.After(time.Minute):
			t.Fatal("nobody noticed")
		}
	}
}

// TestShutdownLetsAnswersFinish: and closes idle connections.
func TestShutdownLetsAnswersFinish(t *testing.T) {
	at, release := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	states := map[http.ConnState]int{}
	addr, s := startServer(t, &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				close(at)
				<-release
			}
			_, _ = io.WriteString(w, "done")
		}),
		ConnState: func(_ net.Conn, s http.ConnState) { mu.Lock(); states[s]++; mu.Unlock() },
	}, false)
	idle, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	br := bufio.NewReader(idle)
	_, _ = io.WriteString(idle, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != 200 {
		t.Fatal(err)
	} else if b, err := io.ReadAll(resp.Body); string(b) != "done" {
		t.Fatal(err)
	}
	answer := make(chan string)
	go func() { answer <- sendRaw(t, addr, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n") }()
	<-at
	down := make(chan error)
	go func() { down <- s.Shutdown(context.Background()) }()
	if _, err := br.ReadByte(); err == nil {
		t.Error("the idle connection was not closed")
	}
	select {
	case err := <-down:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	if got := <-answer; !strings.Contains(got, "done") {
		t.Errorf("got %s", got)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("it still accepts")
	}
	mu.Lock()
	defer mu.Unlock()
	if states[http.StateNew] != 2 || states[http.StateClosed] != 2 || states[http.StateActive] != 2 {
		t.Errorf("states were told as %v", states)
	}
}

// TestHandlerReadDeadlines: they end the read of a body that does not come, and do not apply to later requests.
func TestHandlerReadDeadlines(t *testing.T) {
	addr, _ := startServer(t, &http.Server{IdleTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if err := errors.Join(rc.EnableFullDuplex(), rc.SetReadDeadline(time.Now().Add(30*time.Millisecond))); err != nil {
			t.Error(err)
		}
		_, err := io.ReadAll(r.Body)
		if err := rc.SetReadDeadline(time.Time{}); err != nil {
			t.Error(err)
		}
		_, _ = fmt.Fprint(w, timeoutOrOther(err) == err)
		_ = rc.Flush()
		_, _ = io.ReadAll(r.Body)
	})}, false)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	br := bufio.NewReader(c)
	for range 3 {
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab")
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		var b [4]byte
		if _, err := io.ReadFull(resp.Body, b[:]); string(b[:]) != "true" {
			t.Fatalf("%q, %v", b, err)
		}
		_, _ = io.WriteString(c, "cd")
		_, _ = io.ReadAll(resp.Body)
	}
}

// FuzzParseRequestHead compares requests parsed here with net/http: equal, or left to net/http.
func FuzzParseRequestHead(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST /a?b=c HTTP/1.1\r\nHost: a:1\r\nContent-Length: 3\r\nx-a: b\r\nX-A: c\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 000000000000000000000000000003\r\n\r\nabc", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 184467440737095516160000000003\r\n\r\nabc",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: close, x\r\n\r\n", "GET /%41//../x#y HTTP/1.1\r\nHost: [::1]:80\r\nA:\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		n := findHeadEnd(text)
		if n == 0 {
			return
		}
		p := parseRequestHead(string(text[:n]))
		if p == nil {
			return
		}
		got := p.toHTTPRequest(context.Background())
		want, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text)))
		if err != nil {
			t.Fatalf("%q is served, and net/http refuses it: %v", text, err)
		}
		show := func(r *http.Request) string {
			return fmt.Sprintf("%s %v %q %s %v %d %v %v", r.Method, r.URL, r.RequestURI, r.Host, r.Header, r.ContentLength, r.TransferEncoding, r.Close)
		}
		if show(got) != show(want) {
			t.Errorf("%q\ngot  %s\nwant %s", text, show(got), show(want))
		}
	})
}

// FuzzChunks: the split of a body into pieces does not matter.
func FuzzChunks(f *testing.F) {
	for _, s := range []string{
		"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nX: y\r\n\r\nrest", "3\r\nabcxx0\r\n\r\n", "3 ;a\r\nabc\r\n0\r\n\r\n", "0\r\n00000000\r\n\r\n",
		"00000000000000003\r\nabc\r\n0\r\n\r\n",
	} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, text []byte, size uint8) {
		whole, err := decodeChunked(slices.Values([][]byte{text}))
		parts, err2 := decodeChunked(slices.Chunk(text, int(size)+1))
		if err == nil && (err2 != nil || whole != parts) {
			t.Errorf("%q: %q, %v; in pieces of %d: %q, %v", text, whole, err, int(size)+1, parts, err2)
		}
		if err != nil {
			return
		}
		// What is accepted here is also accepted by net/http, with the same result.
		resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), bytes.NewReader(text))), nil)
		if err != nil {
			t.Fatal(err)
		}
		if theirs, err := io.ReadAll(resp.Body); err != nil || string(theirs) != whole {
			t.Errorf("%q: %q, net/http %q, %v", text, whole, theirs, err)
		}
	})
}

func decodeChunked(pieces func(func([]byte) bool)) (string, error) {
	var out strings.Builder
	f := bodyDecoder{readBufConn: &readBufConn{buf: getBuffer(false)}, chunked: true}
	for p := range pieces {
		if f.r == f.w {
			f.r, f.w = 0, 0
		}
		if f.w+len(p) > len(*f.buf) {
			f.w = copy(*f.buf, (*f.buf)[f.r:f.w])
			f.r = 0
		}
		if f.w+len(p) > len(*f.buf) {
			return "", errBufferFull
		}
		f.w += copy((*f.buf)[f.w:], p)
		got, err := f.decodeBuffered()
		out.Write(got)
		if err == io.EOF {
			return out.String(), nil
		}
		if err != nil {
			return out.String(), err
		}
	}
	return out.String(), io.ErrUnexpectedEOF
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// discardLog discards the error log of servers.
var discardLog = log.New(io.Discard, "", 0)

// A handler ends its response while another goroutine reads the request body, as a transport does that has sent the
// request on. The server then closes the connection, and the client must be able to write on until it has read the
// response.
func TestClientMayWriteItsBodyAfterTheResponse(t *testing.T) {
	reading := make(chan struct{})
	s := NewServer(&http.Server{ErrorLog: discardLog, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // net/http's own writer supports it
		w.Header().Set("Connection", "close")
		w.Header().Set("Content-Length", "0")
		go func() {
			one := make([]byte, 1)
			_, _ = r.Body.Read(one)
			close(reading)
			_, _ = io.Copy(io.Discard, r.Body)
		}()
		<-reading // the first byte has arrived, and the goroutine waits for more
		LingerAtClose(r)
	})}, nil)
	s.lingerTime = time.Minute
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }() // it ends with the server
	defer func() { _ = s.Close() }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, "POST /any.Service/Fail HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	_ = resp.Body.Close() // empty
	if _, err := in.ReadByte(); err != io.EOF {
		t.Fatalf("after the response: %v, want the end of the connection", err)
	}
	for i := range 100 { // the first write to a closed connection succeeds and is answered by a reset
		if _, err := fmt.Fprintf(c, "5\r\nhello\r\n"); err != nil {
			t.Fatalf("write %d after the response: %v", i, err)
		}
	}
}

// TestIsPlainPathAgreesWithNetURL: a target accepted as a plain path is the same path to net/url.
func TestIsPlainPathAgreesWithNetURL(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := "/" + rapid.OneOf(rapid.StringMatching(`[a-z0-9_./-]{0,20}`), rapid.StringMatching(`[a-z/.%2f:?#@;~!-]{0,12}`)).Draw(t, "target")
		if !isPlainPath(s) {
			return
		}
		u, err := url.ParseRequestURI(s)
		if err != nil || *u != (url.URL{Path: s}) {
			t.Fatalf("%q is %+v, %v", s, u, err)
		}
	})
	if !isPlainPath("/v1/chat/completions") || isPlainPath("//host/path") || isPlainPath("/a?b") || isPlainPath("/%41") {
		t.Fatal("plain is not what it says")
	}
}
