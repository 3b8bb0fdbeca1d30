package wire

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

// passer follows answers and passes them on.
type passer struct {
	w      http.ResponseWriter
	resp   *http.Response
	err    error // how it ended
	pieces int
	over   func(*passer)
	held   [2]chan bool // Held(false) and Held(true) go there, where somebody waits
}

func (p *passer) Piece(b []byte, err error) bool {
	p.pieces++
	if len(b) > 0 {
		if _, werr := p.w.Write(b); werr != nil {
			p.err = werr
			return false
		}
		if werr := http.NewResponseController(p.w).Flush(); werr != nil {
			p.err = werr
			return false
		}
	}
	p.err = err
	return err == nil
}

func (p *passer) Held(on bool) {
	at := p.held[0]
	if on {
		at = p.held[1]
	}
	select {
	case at <- true:
	default:
	}
}

func (p *passer) Unsent(err error) { p.err = err }

func (p *passer) Over() {
	_ = p.resp.Body.Close()
	if p.over != nil {
		p.over(p)
	}
}

// proxy is a server that has all answers of an upstream followed; ended hears how each went.
func proxy(t *testing.T, upstream string, client *tls.Config, secure bool, ended func(*passer)) (addr string, s *Server, followed *atomic.Int64) {
	t.Helper()
	if !canFollow {
		t.Skip("nothing is followed on this system")
	}
	tr := over(t, client)
	followed = &atomic.Int64{}
	std := &http.Server{ErrorLog: discard, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
		p := &passer{w: w, resp: resp, over: ended}
		if resp.ContentLength < 0 && Follow(w, resp.Body, p) {
			followed.Add(1)
			return
		}
		_, _ = io.Copy(w, resp.Body)
		_ = resp.Body.Close()
	})}
	if secure {
		std.TLSConfig = httptestCertificate(t)
	}
	addr, s = served(t, std, secure)
	return addr, s, followed
}

func httptestCertificate(t *testing.T) *tls.Config {
	t.Helper()
	ts := httptest.NewUnstartedServer(nil)
	ts.StartTLS()
	t.Cleanup(ts.Close)
	return &tls.Config{Certificates: ts.TLS.Certificates}
}

// TestFollowedStreamsPass: streams of many sizes pass whole, one after the other on the same connections and many at once,
// with and without TLS on either side.
func TestFollowedStreamsPass(t *testing.T) {
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
		addr, _, followed := proxy(t, ts.URL, &tls.Config{InsecureSkipVerify: true}, secure, nil)
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

// endless is an upstream that sends a piece whenever it is told, and says when it was hung up on.
type endless struct {
	*httptest.Server
	say  chan string
	gone chan struct{}
}

func newEndless(t *testing.T) *endless {
	e := &endless{say: make(chan string), gone: make(chan struct{}, 10)}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_, _ = io.WriteString(w, "first\n")
		_ = rc.Flush()
		for {
			select {
			case s, ok := <-e.say:
				if !ok {
					return
				}
				if s == "" {
					panic(http.ErrAbortHandler)
				}
				_, _ = io.WriteString(w, s)
				_ = rc.Flush()
			case <-r.Context().Done():
				e.gone <- struct{}{}
				return
			}
		}
	}))
	t.Cleanup(e.Close)
	return e
}

// began asks for a stream and reads its first piece.
func began(t *testing.T, addr string) net.Conn {
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

// TestAClientThatLeavesEndsWhatIsFollowed: the upstream is hung up on at once.
func TestAClientThatLeavesEndsWhatIsFollowed(t *testing.T) {
	e := newEndless(t)
	ended := make(chan error, 1)
	addr, _, _ := proxy(t, e.URL, nil, false, func(p *passer) { ended <- p.err })
	c := began(t, addr)
	_ = c.Close()
	if err := <-ended; err == nil || err == io.EOF {
		t.Errorf("the stream ended with %v", err)
	}
	<-e.gone
}

// TestAnUpstreamThatBreaksEndsWhatIsFollowed: without a last chunk, so that nobody takes the part for the whole.
func TestAnUpstreamThatBreaksEndsWhatIsFollowed(t *testing.T) {
	e := newEndless(t)
	ended := make(chan error, 1)
	addr, _, _ := proxy(t, e.URL, nil, false, func(p *passer) {
		ended <- p.err
		panic(http.ErrAbortHandler)
	})
	c := began(t, addr)
	e.say <- ""
	if err := <-ended; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the stream ended with %v", err)
	}
	rest, _ := io.ReadAll(c)
	if strings.Contains(string(rest), "0\r\n\r\n") {
		t.Errorf("the client has an end: %q", rest)
	}
}

// TestASlowClientHoldsUpNobodyElse: what is followed for a client that does not read stands still, within a bound, and goes
// on when it reads; others go on meanwhile.
func TestASlowClientHoldsUpNobodyElse(t *testing.T) {
	slow, quick := newEndless(t), newEndless(t)
	var sent atomic.Int64
	addr, _, _ := proxy(t, slow.URL, nil, false, nil)
	other, _, _ := proxy(t, quick.URL, nil, false, nil)
	c := began(t, addr)
	q := began(t, other)
	piece := strings.Repeat("x", 64<<10)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case slow.say <- piece:
				sent.Add(int64(len(piece)))
			case <-stop:
				return
			}
		}
	})
	for last := int64(-1); last != sent.Load(); { // until it stands still
		last = sent.Load()
		for range 20 {
			quick.say <- "tick\n"
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

// torrent is a server whose answers never end.
func torrent(t *testing.T) *httptest.Server {
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

// TestAClientThatNeverReadsIsGivenUp: when the time for a write is over.
func TestAClientThatNeverReadsIsGivenUp(t *testing.T) {
	if !canFollow {
		t.Skip("nothing is followed on this system")
	}
	up := torrent(t)
	ended := make(chan error, 1)
	tr := over(t, nil)
	addr, _ := served(t, &http.Server{ErrorLog: discard, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, _ := http.NewRequestWithContext(r.Context(), http.MethodGet, up.URL, nil)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Error(err)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		if !Follow(w, resp.Body, &passer{w: w, resp: resp, over: func(p *passer) { ended <- p.err }}) {
			t.Error("it is not followed")
		}
	})}, false)
	began(t, addr)
	if err := <-ended; errTimeout(err) != err {
		t.Errorf("the stream ended with %v", err)
	}
}

// TestCloseEndsWhatIsFollowed: and Shutdown waits for it.
func TestCloseEndsWhatIsFollowed(t *testing.T) {
	e := newEndless(t)
	ended := make(chan error, 1)
	addr, s, _ := proxy(t, e.URL, nil, false, func(p *passer) { ended <- p.err })
	began(t, addr)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown returned %v while a stream was open", err)
	}
	_ = s.Close()
	if err := <-ended; err == nil || err == io.EOF {
		t.Errorf("the stream ended with %v", err)
	}
	<-e.gone
}
