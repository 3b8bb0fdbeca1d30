package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// recordingHandler forwards detached responses and records their end.
type recordingHandler struct {
	writer         http.ResponseWriter
	resp           *http.Response
	err            error // the error at the end
	chunks         int
	onFinish       func(*recordingHandler)
	blockedSignals [2]chan bool // if not nil, receive SetClientBlocked(false) and SetClientBlocked(true)
}

func (p *recordingHandler) HandleChunk(b []byte, err error) bool {
	p.chunks++
	if len(b) > 0 {
		if _, werr := p.writer.Write(b); werr != nil {
			p.err = werr
			return false
		}
		if werr := http.NewResponseController(p.writer).Flush(); werr != nil {
			p.err = werr
			return false
		}
	}
	p.err = err
	return err == nil
}

func (p *recordingHandler) SetClientBlocked(on bool) {
	at := p.blockedSignals[0]
	if on {
		at = p.blockedSignals[1]
	}
	select {
	case at <- true:
	default:
	}
}

func (p *recordingHandler) HandleWriteError(err error) { p.err = err }

func (p *recordingHandler) FinishDetached() {
	_ = p.resp.Body.Close()
	if p.onFinish != nil {
		p.onFinish(p)
	}
}

// startDetachingProxy starts a server that detaches all responses of an upstream. ended receives the result of
// each.
func startDetachingProxy(t *testing.T, upstream string, client *tls.Config, secure bool, ended func(*recordingHandler)) (addr string, s *Server, followed *atomic.Int64) {
	t.Helper()
	if !canDetach {
		t.Skip("nothing is followed on this system")
	}
	tr := newTestTransport(t, client)
	followed = &atomic.Int64{}
	std := &http.Server{ErrorLog: discardLog, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, upstream+r.URL.Path, nil)
		if err != nil {
			t.Error(err)
			return
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.Header()["Date"] = nil
		p := &recordingHandler{writer: w, resp: resp, onFinish: ended}
		if resp.ContentLength < 0 && DetachStream(w, resp.Body, p) {
			followed.Add(1)
			return
		}
		_, _ = io.Copy(w, resp.Body)
		_ = resp.Body.Close()
	})}
	if secure {
		std.TLSConfig = httptestCertificate(t)
	}
	addr, s = startServer(t, std, secure)
	return addr, s, followed
}

func httptestCertificate(t *testing.T) *tls.Config {
	t.Helper()
	ts := httptest.NewUnstartedServer(nil)
	ts.StartTLS()
	t.Cleanup(ts.Close)
	return &tls.Config{Certificates: ts.TLS.Certificates}
}

// TestDetachedStreamsArriveWhole: streams of many sizes pass whole, one after the other on the same connections
// and many concurrently, with and without TLS on either side.
func TestDetachedStreamsArriveWhole(t *testing.T) {
	var conns sync.Map
	big := strings.Repeat("0123456789abcdef", 40<<10/16)
	up := func(w http.ResponseWriter, r *http.Request) {
		conns.Store(r.RemoteAddr, true)
		if r.URL.Path == "/plain" {
			_, _ = io.WriteString(w, "plain")
			return
		}
		rc := http.NewResponseController(w)
		for i := range 30 {
			piece := fmt.Sprintf("event %d of %s\n\n", i, r.URL.Path)
			if i%10 == 9 {
				piece += big
			}
			_, _ = io.WriteString(w, piece)
			_ = rc.Flush()
		}
	}
	want := func(path string) string {
		var b strings.Builder
		for i := range 30 {
			fmt.Fprintf(&b, "event %d of %s\n\n", i, path)
			if i%10 == 9 {
				b.WriteString(big)
			}
		}
		return b.String()
	}
	for _, secure := range []bool{false, true} {
		ts := httptest.NewUnstartedServer(http.HandlerFunc(up))
		if secure {
			ts.StartTLS()
		} else {
			ts.Start()
		}
		addr, _, followed := startDetachingProxy(t, ts.URL, &tls.Config{InsecureSkipVerify: true}, secure, nil)
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 8}}
		scheme := "http://"
		if secure {
			scheme = "https://"
		}
		get := func(path string) {
			resp, err := client.Get(scheme + addr + path)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			expected := want(path)
			if path == "/plain" {
				expected = "plain"
			}
			if err != nil || string(text) != expected {
				t.Errorf("%s: %d bytes and %v, want %d", path, len(text), err, len(expected))
			}
		}
		conns.Clear()
		for i := range 5 {
			get(fmt.Sprint("/alone/", i))
			get("/plain")
		}
		n := 0
		conns.Range(func(any, any) bool { n++; return true })
		if n != 1 {
			t.Errorf("%d connections to the upstream, want the same one each time", n)
		}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for k := range 5 {
					get(fmt.Sprint("/many/", i, "/", k))
				}
			})
		}
		wg.Wait()
		if followed.Load() != 45 {
			t.Errorf("%d streams were followed, want 45", followed.Load())
		}
		client.CloseIdleConnections()
		ts.Close()
	}
}

// controlledUpstream is an upstream that sends a piece on demand and reports when its client hangs up.
type controlledUpstream struct {
	*httptest.Server
	toSend       chan string
	disconnected chan struct{}
}

func newControlledUpstream(t *testing.T) *controlledUpstream {
	e := &controlledUpstream{toSend: make(chan string), disconnected: make(chan struct{}, 10)}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_, _ = io.WriteString(w, "first\n")
		_ = rc.Flush()
		for {
			select {
			case s, ok := <-e.toSend:
				if !ok {
					return
				}
				if s == "" {
					panic(http.ErrAbortHandler)
				}
				_, _ = io.WriteString(w, s)
				_ = rc.Flush()
			case <-r.Context().Done():
				e.disconnected <- struct{}{}
				return
			}
		}
	}))
	t.Cleanup(e.Close)
	return e
}

// openStream requests a stream and reads its first piece.
func openStream(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	text := make([]byte, 0, 4096)
	for !strings.Contains(string(text), "first") {
		n, err := c.Read(text[len(text):cap(text)])
		if err != nil {
			t.Fatal(err)
		}
		text = text[:len(text)+n]
	}
	return c
}

// TestClientDisconnectEndsDetachedStream: the connection to the upstream is closed at once.
func TestClientDisconnectEndsDetachedStream(t *testing.T) {
	e := newControlledUpstream(t)
	ended := make(chan error, 1)
	addr, _, _ := startDetachingProxy(t, e.URL, nil, false, func(p *recordingHandler) { ended <- p.err })
	c := openStream(t, addr)
	_ = c.Close()
	if err := <-ended; err == nil || err == io.EOF {
		t.Errorf("the stream ended with %v", err)
	}
	<-e.disconnected
}

// TestUpstreamBreakEndsDetachedStream: without a last chunk, so that no client mistakes the part for the whole.
func TestUpstreamBreakEndsDetachedStream(t *testing.T) {
	e := newControlledUpstream(t)
	ended := make(chan error, 1)
	addr, _, _ := startDetachingProxy(t, e.URL, nil, false, func(p *recordingHandler) {
		ended <- p.err
		panic(http.ErrAbortHandler)
	})
	c := openStream(t, addr)
	e.toSend <- ""
	if err := <-ended; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the stream ended with %v", err)
	}
	rest, _ := io.ReadAll(c)
	if strings.Contains(string(rest), "0\r\n\r\n") {
		t.Errorf("the client has an end: %q", rest)
	}
}

// TestSlowClientDoesNotDelayOtherStreams: a detached stream stops within a bound while its client does not
// read, and continues when it reads. Other streams continue meanwhile.
func TestSlowClientDoesNotDelayOtherStreams(t *testing.T) {
	slow, quick := newControlledUpstream(t), newControlledUpstream(t)
	var sent atomic.Int64
	addr, _, _ := startDetachingProxy(t, slow.URL, nil, false, nil)
	other, _, _ := startDetachingProxy(t, quick.URL, nil, false, nil)
	c := openStream(t, addr)
	q := openStream(t, other)
	piece := strings.Repeat("x", 64<<10)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case slow.toSend <- piece:
				sent.Add(int64(len(piece)))
			case <-stop:
				return
			}
		}
	})
	for last := int64(-1); last != sent.Load(); { // until no more is sent
		last = sent.Load()
		for range 20 {
			quick.toSend <- "tick\n"
			readUntil(t, q, "tick")
		}
	}
	if sent.Load() > 64<<20 {
		t.Errorf("%d bytes were taken for a client that reads nothing", sent.Load())
	}
	before := sent.Load()
	for sent.Load() < before+4<<20 {
		if _, err := io.CopyN(io.Discard, c, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
}

func readUntil(t *testing.T, c net.Conn, what string) {
	t.Helper()
	buf := make([]byte, 4096)
	for text := ""; !strings.Contains(text, what); {
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		text += string(buf[:n])
	}
}

// startEndlessServer starts a server whose responses never end.
func startEndlessServer(t *testing.T) *httptest.Server {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		piece := make([]byte, 64<<10)
		for {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}))
	t.Cleanup(up.Close)
	return up
}

// TestClientThatNeverReadsTimesOut: after the write timeout.
func TestClientThatNeverReadsTimesOut(t *testing.T) {
	if !canDetach {
		t.Skip("nothing is followed on this system")
	}
	up := startEndlessServer(t)
	ended := make(chan error, 1)
	tr := newTestTransport(t, nil)
	addr, _ := startServer(t, &http.Server{ErrorLog: discardLog, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, _ := http.NewRequestWithContext(r.Context(), http.MethodGet, up.URL, nil)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Error(err)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		if !DetachStream(w, resp.Body, &recordingHandler{writer: w, resp: resp, onFinish: func(p *recordingHandler) { ended <- p.err }}) {
			t.Error("it is not followed")
		}
	})}, false)
	openStream(t, addr)
	if err := <-ended; timeoutOrOther(err) != err {
		t.Errorf("the stream ended with %v", err)
	}
}

// TestCloseEndsDetachedStreams: and Shutdown waits for them.
func TestCloseEndsDetachedStreams(t *testing.T) {
	e := newControlledUpstream(t)
	ended := make(chan error, 1)
	addr, s, _ := startDetachingProxy(t, e.URL, nil, false, func(p *recordingHandler) { ended <- p.err })
	openStream(t, addr)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown returned %v while a stream was open", err)
	}
	_ = s.Close()
	if err := <-ended; err == nil || err == io.EOF {
		t.Errorf("the stream ended with %v", err)
	}
	<-e.disconnected
}

// TestDetachedStreamsKeepTheirTrailers: a sent head is released while a stream is detached, but not its
// trailers.
func TestDetachedStreamsKeepTheirTrailers(t *testing.T) {
	if !canDetach {
		t.Skip("nothing is followed on this system")
	}
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "text")
		_ = http.NewResponseController(w).Flush()
	}))
	defer up.Close()
	tr := newTestTransport(t, nil)
	left := make(chan int, 2)
	addr, _ := startServer(t, &http.Server{ErrorLog: discardLog, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, _ := http.NewRequestWithContext(r.Context(), http.MethodGet, up.URL, nil)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Error(err)
			return
		}
		for name, value := range map[string]string{"Trailer": "X-End, X-Early", "X-Head": "1", "X-Early": "2", http.TrailerPrefix + "X-Marked": "3"} {
			w.Header().Set(name, value)
		}
		_ = http.NewResponseController(w).Flush()
		if !DetachStream(w, resp.Body, &recordingHandler{writer: w, resp: resp, onFinish: func(p *recordingHandler) {
			left <- len(p.writer.Header())
			p.writer.Header().Set("X-End", "4")
			p.writer.Header().Set(http.TrailerPrefix+"X-Late", "5")
		}}) {
			t.Error("it is not followed")
		}
	})}, false)
	for range 2 { // on one connection
		resp, err := http.Get("http://" + addr + "/")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(body) != "text" || resp.Header.Get("X-Head") != "1" {
			t.Errorf("%q with head %v (%v)", body, resp.Header, err)
		}
		for name, want := range map[string]string{"X-End": "4", "X-Early": "2", "X-Marked": "3", "X-Late": "5", "X-Head": ""} {
			if got := resp.Trailer.Get(name); got != want {
				t.Errorf("trailer %s is %q, want %q", name, got, want)
			}
		}
		if n := <-left; n != 2 {
			t.Errorf("%d headers are held while the stream is followed, want the 2 that come after it", n)
		}
	}
}
