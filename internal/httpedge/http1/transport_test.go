package http1

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/testkit"
)

func newTestTransport(t *testing.T, cfg *tls.Config) *Transport {
	t.Helper()
	tr := NewTransport(&http.Transport{
		DialContext: (&net.Dialer{}).DialContext, TLSClientConfig: cfg, MaxIdleConns: 64, MaxIdleConnsPerHost: 64,
		IdleConnTimeout: time.Minute, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}, DisableCompression: true,
	})
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// TestTransportBehavesAsNetHTTP: requests and responses of all kinds arrive whole, on the fast path and by
// net/http, with and without TLS, concurrently.
func TestTransportBehavesAsNetHTTP(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Echo", r.Header.Get("X-Mine"))
		w.Header().Set("X-Target", r.RequestURI)
		switch r.URL.Path {
		case "/none":
			w.WriteHeader(http.StatusNoContent)
		case "/interim":
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = w.Write(body)
		case "/stream":
			w.Header().Set("Trailer", "X-End")
			for i := range 20 {
				_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
				_ = http.NewResponseController(w).Flush()
			}
			w.Header().Set("X-End", "there")
		case "/close":
			w.Header().Set("Connection", "close")
			_, _ = w.Write(body)
		default:
			w.WriteHeader(http.StatusTeapot)
			_, _ = w.Write(body)
		}
	})
	for _, secure := range []bool{false, true} {
		srv := httptest.NewUnstartedServer(handler)
		if secure {
			srv.StartTLS()
		} else {
			srv.Start()
		}
		defer srv.Close()
		var cfg *tls.Config
		if secure {
			cfg = srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			cfg.NextProtos = nil
		}
		tr := newTestTransport(t, cfg)
		var wg sync.WaitGroup
		for worker := range 8 {
			wg.Go(func() {
				for i := range 60 {
					path := []string{"/echo?a=b", "/none", "/interim", "/stream", "/close"}[(worker+i)%5]
					n := []int{1, 1000, 20_000, 200_000}[i%4]
					body := strings.Repeat(string(rune('a'+worker)), n)
					req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+path, strings.NewReader(body))
					req.Header.Set("X-Mine", fmt.Sprint(worker, i))
					resp, err := tr.RoundTrip(req)
					if err != nil {
						t.Errorf("%s: %v", path, err)
						return
					}
					got, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					want := body
					if path == "/none" {
						want = ""
					}
					if path == "/stream" {
						want = "data: 0\n\n"
						got = got[:min(len(got), len(want))]
						if resp.Trailer.Get("X-End") != "there" {
							t.Errorf("trailer %v", resp.Trailer)
						}
					}
					if (resp.TLS != nil) != secure {
						t.Errorf("%s: TLS is %v", path, resp.TLS)
					}
					if err != nil || string(got) != want || resp.Header.Get("X-Echo") != fmt.Sprint(worker, i) || resp.Header.Get("X-Target") != path {
						t.Errorf("%s with %d bytes: %d bytes, %v, %v", path, n, len(got), err, resp.Header)
					}
				}
			})
		}
		wg.Wait()
	}
}

// TestConnectionsAreReused: sequential requests use one connection, and one closed by the other side is not
// used.
func TestConnectionsAreReused(t *testing.T) {
	var opened atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	tr := newTestTransport(t, nil)
	ask := func() {
		t.Helper()
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader("hello"))
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); string(b) != "hello" || err != nil {
			t.Fatalf("%q, %v", b, err)
		}
		_ = resp.Body.Close()
	}
	for range 5 {
		ask()
	}
	if n := opened.Load(); n != 1 {
		t.Errorf("five requests took %d connections", n)
	}
	srv.CloseClientConnections()
	ask()
	if n := opened.Load(); n != 2 {
		t.Errorf("after the server had closed it there were %d connections", n)
	}
}

// startRawServer serves connections one after the other with f.
func startRawServer(t *testing.T, f func(c net.Conn, br *bufio.Reader)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f(c, bufio.NewReader(c))
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// TestContextEndClosesTheConnection: the end of a context closes the connection at once, before and during a
// response, and its cause is returned.
func TestContextEndClosesTheConnection(t *testing.T) {
	gone := make(chan struct{}, 1)
	why := errors.New("had enough")
	for _, answer := range []string{"", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		url := startRawServer(t, func(c net.Conn, br *bufio.Reader) {
			_, _ = http.ReadRequest(br)
			_, _ = io.WriteString(c, answer)
			time.AfterFunc(20*time.Millisecond, func() { cancel(why) }) // not during the dial
			_, _ = io.Copy(io.Discard, c)
			gone <- struct{}{}
		})
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		resp, err := newTestTransport(t, nil).RoundTrip(req)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
		}
		if !errors.Is(err, why) {
			t.Errorf("after %q: %v", answer, err)
		}
		select {
		case <-gone:
		case <-time.After(time.Minute):
			t.Error("the connection stayed open")
		}
	}
}

// TestClosingABodyEarlyEndsTheConnection: and no byte of it reaches the next request.
func TestClosingABodyEarlyEndsTheConnection(t *testing.T) {
	url := startRawServer(t, func(c net.Conn, br *bufio.Reader) {
		for {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel")
		}
	})
	tr := newTestTransport(t, nil)
	for range 3 {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		var b [3]byte
		if _, err := io.ReadFull(resp.Body, b[:]); string(b[:]) != "hel" || err != nil {
			t.Fatalf("%q, %v", b, err)
		}
		_ = resp.Body.Close()
		if _, err := resp.Body.Read(b[:]); err == nil {
			t.Error("a closed body can be read")
		}
	}
}

// TestUnsolicitedBytesEndTheConnection: bytes after a response, at once or later.
func TestUnsolicitedBytesEndTheConnection(t *testing.T) {
	var served atomic.Int32
	taken, said := make(chan bool), make(chan bool)
	url := startRawServer(t, func(c net.Conn, br *bufio.Reader) {
		if _, err := http.ReadRequest(br); err != nil {
			return
		}
		if served.Add(1)%2 == 0 {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			<-taken
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
		} else {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
			<-taken
		}
		said <- true
		_, _ = io.Copy(io.Discard, c)
	})
	tr := newTestTransport(t, nil)
	for range 6 {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); string(b) != "ok" || err != nil {
			t.Fatalf("%q, %v", b, err)
		}
		_ = resp.Body.Close()
		taken <- true
		<-said // so that it arrives before the next request is sent
	}
}

// FuzzTransportAnswer compares responses read here with net/http: equal, or refused.
func FuzzTransportAnswer(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nX: y\r\n\r\n",
		"HTTP/1.1 200 OK\r\n\r\nuntil the end",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nA: b\r\n\r\n",
		"HTTP/1.0 200 OK\nA: b\n c\n\nx",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 200\r\nContent-Length: 3\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabcdef",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
		"HTTP/1.1 200\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabcdef",
		"HTTP/1.1 200 \r\n\r\n0",
		"HTTP/1.1 200\r\nContent-Length: 3\r\nConnection: close, x\r\nX: y\r\n\r\nabcdef",
		"HTTP/1.1 200 \r\nTransfer-Encoding: Chunked\r\n0:\r\n\r\n00\r\n00000000\r\n\r\n0",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nno colon\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX : y\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloxx1\r\n!\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\n\r0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n00000000000000005\r\nhello\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3 ;a\r\nabc\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 000000000000000000000000000005\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nContent-Length: 184467440737095516160000000005\r\n\r\nhello",
	} {
		f.Add([]byte(s), uint8(7))
	}
	f.Fuzz(func(t *testing.T, text []byte, cut uint8) {
		ours, theirs := readWithTransport(text, int(cut)), readWithNetHTTP(text)
		if ours != theirs && !strings.HasPrefix(ours, "refused") {
			t.Errorf("of %q\nwe read     %s\nnet/http is %s", text, ours, theirs)
		}
	})
}

// TestMalformedChunksAreRefused: framing that deviates from RFC 9112, 7.1 ends the response with an error for
// any split and any following bytes, and closes the connection.
func TestMalformedChunksAreRefused(t *testing.T) {
	for _, body := range []string{
		"5\r\nhelloxx0\r\n\r\n",                   // the data does not end in CRLF
		"5\r\nhello\n\r0\r\n\r\n",                 // LF before CR
		"5\r\nhello0\r\n\r\n0\r\n\r\n",            // no line end
		"00000000000000005\r\nhello\r\n0\r\n\r\n", // a size of 17 digits
		"10000000000000005\r\nhello\r\n0\r\n\r\n", // a size of 17 digits, which overflows
		"0000000000000005\r\nhello\r\n0\r\n\r\n",  // 16 digits
		"5 ;a=b\r\nhello\r\n0\r\n\r\n",            // a space before an extension
		"5\t;a=b\r\nhello\r\n0\r\n\r\n",
		"0\r\nno colon\r\n\r\n", // malformed trailer
		"0\r\n00000000\r\n\r\n",
		"0\r\nX : y\r\n\r\n",
		"0\r\n: y\r\n\r\n",
		"0\r\nX: a\rb\r\n\r\n",
		"0\r\n folded: y\r\n\r\n",
		"-5\r\nhello\r\n0\r\n\r\n",
		"0x5\r\nhello\r\n0\r\n\r\n",
	} {
		text := []byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
		for _, cut := range []int{0, 1, 6, 4000} {
			if got := readWithTransport(text, cut); !strings.HasPrefix(got, "refused") {
				t.Errorf("%q in pieces of %d: %s", body, cut+1, got)
			}
		}
		if got, err := decodeChunked(slices.Values([][]byte{[]byte(body)})); err == nil {
			t.Errorf("%q is decoded as %q", body, got)
		}
	}
	for body, want := range map[string]string{
		"5\r\nhello\r\n0\r\n\r\n": "hello", "000000000000005\r\nhello\r\n0\r\nX: y\r\n\r\n": "hello", "5;a=b\r\nhello\r\n0;x\r\n\r\n": "hello",
		"5  \r\nhello\r\n0\r\n\r\n": "hello",
	} {
		if got, err := decodeChunked(slices.Values([][]byte{[]byte(body)})); err != nil || got != want {
			t.Errorf("%q is decoded as %q, %v", body, got, err)
		}
	}
}

// TestLengthsAreBounded: a Content-Length has at most 15 digits, so that none overflows.
func TestLengthsAreBounded(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "7": 7, "999999999999999": 999_999_999_999_999, "000000000000007": 7} {
		if n, ok := parseContentLength(text); !ok || n != want {
			t.Errorf("%q is read as %d, %v", text, n, ok)
		}
	}
	for _, text := range []string{
		"", "1000000000000000", "0000000000000007", "184467440737095516160000000005", "000000000000000000000000000005", "18446744073709551621",
		"+5", "-5", "5 ", " 5", "0x5", "5,5", "٥",
	} {
		if n, ok := parseContentLength(text); ok {
			t.Errorf("%q is read as %d", text, n)
		}
	}
}

// TestAtEOFDoesNotWaitForClient: AtEOF does not block while a read waits, and a deadline ends that read.
func TestAtEOFDoesNotWaitForClient(t *testing.T) {
	over := make(chan error, 1)
	addr, s := startServer(t, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := r.Body.(*requestBody)
		waits := make(chan error, 1)
		_, _ = io.ReadFull(b, make([]byte, 3))
		go func() { _, err := b.Read(make([]byte, 1)); waits <- err }()
		for b.mu.TryLock() { // until the read holds the lock
			b.mu.Unlock()
			runtime.Gosched()
		}
		asked := make(chan bool, 1)
		go func() { asked <- b.AtEOF() || b.Close() != nil }()
		select {
		case <-asked:
		case <-time.After(time.Minute):
			over <- errors.New("Ended waits for the client")
			return
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
		over <- nil
		<-waits
	})}, false)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc")
	if err := <-over; err != nil {
		t.Error(err)
	}
	c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// scriptedConn is a connection that returns given bytes in pieces and accepts all writes.
type scriptedConn struct {
	net.Conn
	reader    io.Reader
	chunkSize int
}

func (s *scriptedConn) Read(p []byte) (int, error) {
	return s.reader.Read(p[:min(len(p), s.chunkSize)])
}
func (s *scriptedConn) Write(p []byte) (int, error) { return len(p), nil }
func (s *scriptedConn) Close() error                { return nil }

func readWithTransport(text []byte, cut int) string {
	tr := NewTransport(&http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return &scriptedConn{reader: bytes.NewReader(text), chunkSize: cut + 1}, nil
		},
	})
	req, _ := http.NewRequest(http.MethodPost, "http://x/", strings.NewReader("a"))
	resp, err := tr.RoundTrip(req)
	return describeResponse(resp, err)
}

func readWithNetHTTP(text []byte) string {
	br := bufio.NewReader(bytes.NewReader(text))
	req, _ := http.NewRequest(http.MethodPost, "http://x/", strings.NewReader("a"))
	for {
		resp, err := http.ReadResponse(br, req)
		if err == nil && resp.StatusCode < 200 && resp.StatusCode != 101 {
			continue
		}
		return describeResponse(resp, err)
	}
}

func describeResponse(resp *http.Response, err error) string {
	if err != nil {
		return "refused"
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "refused in the body"
	}
	_ = resp.Body.Close()
	return fmt.Sprintf("%d %q %d %v %v %v %q", resp.StatusCode, resp.Status, resp.ContentLength, resp.TransferEncoding, resp.Header, resp.Trailer, body)
}

// TestConnectionIsReusedOnlyAfterWholeExchange: a connection is not reused if bytes of a response are left, if
// the response was cut or malformed, or if the request was not sent completely. Its next response would belong
// to another request.
func TestConnectionIsReusedOnlyAfterWholeExchange(t *testing.T) {
	const foreign = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nforeign"
	for _, c := range []struct {
		name   string
		answer string // to the first request of the first connection
		long   bool   // the first request is not sent completely
		leaves bool   // the client closes the response before its end
		conns  int64  // after both requests
	}{
		{"whole, with a length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false, false, 1},
		{"whole, in chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", false, false, 1},
		{"whole, without a body", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false, false, 1},
		{"bytes after a length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + foreign, false, false, 2},
		{"bytes after chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + foreign, false, false, 2},
		{"bytes after no body", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + foreign, false, false, 2},
		{"bytes after 204", "HTTP/1.1 204 No Content\r\n\r\n" + foreign, false, false, 2},
		{"a malformed chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nx\r\n", false, false, 2},
		{"closed before its end", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", false, true, 2},
		{"a request not sent to its end", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", true, false, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var served sync.WaitGroup
			defer served.Wait()
			defer func() { _ = l.Close() }()
			var conns atomic.Int64
			end := make(chan struct{}) // of the connections
			defer close(end)
			served.Go(func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					answer := "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nown"
					first := conns.Add(1) == 1
					served.Go(func() { <-end; _ = conn.Close() })
					served.Go(func() {
						br := bufio.NewReader(conn)
						for n := 0; ; n++ {
							req, err := http.ReadRequest(br)
							if err != nil {
								return
							}
							unread := first && n == 0 && c.long
							if !unread {
								_, _ = io.Copy(io.Discard, req.Body)
							}
							if first && n == 0 {
								_, _ = io.WriteString(conn, c.answer)
							} else {
								_, _ = io.WriteString(conn, answer)
							}
							if unread {
								return
							}
						}
					})
				}
			})
			tr := newTestTransport(t, nil)
			defer tr.CloseIdleConnections()
			for i := range 2 {
				body := "x"
				if i == 0 && c.long {
					body = strings.Repeat("x", 64<<20) // more than the buffers of both sides hold
				}
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.Addr().String()+"/", strings.NewReader(body))
				resp, err := tr.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				text := ""
				if i == 0 && c.leaves {
					_, err = io.ReadFull(resp.Body, make([]byte, 2))
				} else {
					var b []byte
					b, err = io.ReadAll(resp.Body)
					text = string(b)
				}
				_ = resp.Body.Close()
				tr.mu.Lock()
				idles := tr.idleCount
				tr.mu.Unlock()
				if kept := idles > 0; i == 0 && kept != (c.conns == 1) {
					t.Fatalf("the connection of the first request is kept: %v", kept) // the second request could block forever
				}
				if i == 1 && (err != nil || text != "own") {
					t.Errorf("the second request is answered with %q, %v", text, err)
				}
			}
			if n := conns.Load(); n != c.conns {
				t.Errorf("two requests took %d connections, want %d", n, c.conns)
			}
		})
	}
}

// TestRequestMetByASlowCloseIsResent: a server ends a connection in two steps, as llama.cpp's does after each stream: it
// sends its end, and a moment later closes with the next request unread. The request is sent again on a new connection.
func TestRequestMetByASlowCloseIsResent(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	answer := func(c net.Conn) error {
		if _, err := http.ReadRequest(bufio.NewReaderSize(c, 4<<10)); err != nil {
			return err
		}
		_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		return err
	}
	var conns atomic.Int64
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			n := conns.Add(1)
			go func() {
				defer c.Close()
				if answer(c) != nil || n > 1 {
					_ = answer(c)
					return
				}
				if _, err := c.Read(make([]byte, 1)); err != nil {
					return
				}
				_ = c.(*net.TCPConn).CloseWrite()
				<-time.After(2 * resetPoll)
			}()
		}
	}()
	tr := newTestTransport(t, nil)
	for i := range 2 {
		req, err := http.NewRequest(http.MethodPost, "http://"+ln.Addr().String(), strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatalf("request %d: %v", i+1, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	testkit.Eventually(t, "two connections were used", func() bool { return conns.Load() == 2 }) // counted after each answer
}
