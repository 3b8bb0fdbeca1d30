package wire

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestFollowedStreamsKeepTheirTrailers: a head that was sent is let go of while a stream is followed, but not what comes
// after the body.
func TestFollowedStreamsKeepTheirTrailers(t *testing.T) {
	if !canFollow {
		t.Skip("nothing is followed on this system")
	}
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "text")
		_ = http.NewResponseController(w).Flush()
	}))
	defer up.Close()
	tr := over(t, nil)
	left := make(chan int, 2)
	addr, _ := served(t, &http.Server{ErrorLog: discard, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
		if !Follow(w, resp.Body, &passer{w: w, resp: resp, over: func(p *passer) {
			left <- len(p.w.Header())
			p.w.Header().Set("X-End", "4")
			p.w.Header().Set(http.TrailerPrefix+"X-Late", "5")
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
