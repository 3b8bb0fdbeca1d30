package http1

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

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
