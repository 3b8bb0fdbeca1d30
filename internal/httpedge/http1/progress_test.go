package http1

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spillway-lb/spillway/internal/testkit"
)

// recordedProgress records the progress of a request.
type recordedProgress struct {
	mu      sync.Mutex
	sent    bool
	interim []string
}

func (w *recordedProgress) WroteRequest() { w.mu.Lock(); w.sent = true; w.mu.Unlock() }

func (w *recordedProgress) GotInterim(h http.Header) {
	w.mu.Lock()
	w.interim = append(w.interim, h.Get("X-Step"))
	w.mu.Unlock()
}

// TestProgressIsReported: short bodies, long bodies, and requests carried by net/http all report that the
// request is written, and each interim response before the final one.
func TestProgressIsReported(t *testing.T) {
	read := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-read
		n, _ := io.Copy(io.Discard, r.Body)
		for _, step := range []string{"a", "b"} {
			w.Header().Set("X-Step", step)
			w.WriteHeader(http.StatusProcessing)
		}
		fmt.Fprint(w, n)
	}))
	defer srv.Close()
	tr := newTestTransport(t, nil)
	for name, c := range map[string]struct {
		rt     http.RoundTripper
		n      int
		expect string
	}{
		"short": {tr, 100, ""}, "long": {tr, 8 << 20, ""}, "rare": {tr, 100, "100-continue"}, "net/http": {tr.httpTransport, 100, ""},
	} {
		t.Run(name, func(t *testing.T) {
			req, _ := newLongRequest(t.Context(), srv.URL, strings.NewReader(strings.Repeat("x", c.n)), c.n)
			if c.expect != "" {
				req.Header.Set("Expect", c.expect)
			}
			p := &recordedProgress{}
			done := make(chan error, 1)
			go func() {
				resp, err := RoundTripObserved(c.rt, req, p)
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				done <- err
			}()
			if c.n > 4<<20 { // more than the buffers of a connection hold
				p.mu.Lock()
				if p.sent {
					t.Error("a body that the other side does not read is reported as sent")
				}
				p.mu.Unlock()
			}
			read <- struct{}{}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, "the request is reported as sent", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.sent })
			p.mu.Lock()
			defer p.mu.Unlock()
			steps := slices.DeleteFunc(p.interim, func(s string) bool { return s == "" }) // 100 of Expect
			if !slices.Equal(steps, []string{"a", "b"}) {
				t.Errorf("interim answers %v", p.interim)
			}
		})
	}
}

// TestSlowClientIsReportedAsBlocked: the DetachHandler is notified when a stream starts and stops waiting for
// its client.
func TestSlowClientIsReportedAsBlocked(t *testing.T) {
	if !canDetach {
		t.Skip("nothing is followed on this system")
	}
	up := startEndlessServer(t)
	held, ended := [2]chan bool{make(chan bool, 1), make(chan bool, 1)}, make(chan bool)
	tr := newTestTransport(t, nil)
	addr, _ := startServer(t, &http.Server{ErrorLog: discardLog, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, up.URL, nil)
		if err != nil {
			t.Error(err)
			return
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		if !DetachStream(w, resp.Body, &recordingHandler{writer: w, resp: resp, blockedSignals: held, onFinish: func(*recordingHandler) { close(ended) }}) {
			t.Error("it is not followed")
		}
	})}, false)
	c := openStream(t, addr)
	<-held[1]
	for free := false; !free; {
		if _, err := io.CopyN(io.Discard, c, 1<<20); err != nil {
			t.Fatal(err)
		}
		select {
		case <-held[0]:
			free = true
		default:
		}
	}
	_ = c.Close()
	<-ended
}
