package local_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// TestAStreamWaitsForAWorkerThatRestarts: the other worker has just been restarted and shows nothing yet when a stream is cut. The
// stream goes on there once it is ready, because what engine it is was remembered.
func TestAStreamWaitsForAWorkerThatRestarts(t *testing.T) {
	var away atomic.Bool
	cut := make(chan struct{})
	hit := make(chan struct{}, 1)
	const event = `data: {"id":"a","choices":[{"index":0,"delta":{"content":"`
	worker := func(chat http.HandlerFunc, away *atomic.Bool) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case away.Load():
				w.WriteHeader(http.StatusServiceUnavailable)
			case r.URL.Path == "/v1/models":
				_, _ = io.WriteString(w, `{"data":[{"id":"m","owned_by":"vllm"}]}`)
			case r.Method == http.MethodPost && r.URL.Path == "/v1/chat/completions":
				chat(w, r)
			}
		}))
		t.Cleanup(s.Close)
		return s
	}
	dies := worker(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, event+`one "},"finish_reason":null}]}`+"\n\n")
		w.(http.Flusher).Flush()
		hit <- struct{}{}
		<-cut
		panic(http.ErrAbortHandler)
	}, new(atomic.Bool))
	goesOn := worker(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !bytes.Contains(body, []byte("continue_final_message")) {
			t.Errorf("the other worker is asked %s", body)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, event+`two"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
	}, &away)
	one := discover.Worker{Name: "w1", URL: dies.URL, Weight: 1}
	two := discover.Worker{Name: "w2", URL: goesOn.URL, Weight: 1, Models: []string{"m"}}
	a := start(t, func(c *local.Config) { c.Workers = []discover.Worker{one, two} })
	eventually(t, "both are ready", func() bool { return ready(a) == 2 })
	away.Store(true)
	eventually(t, "one is away", func() bool { return ready(a) == 1 })
	two.Weight = 2 // declared again while it is away
	a.Declare([]discover.Worker{one, two})
	done := make(chan string)
	go func() {
		_, text := post(t, a, `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
		done <- text
	}()
	<-hit
	close(cut)
	eventually(t, "the loss is noticed", func() bool { return status(a, "w1").InFlight == 0 })
	away.Store(false)
	if text := <-done; strings.Contains(text, "error") || !strings.Contains(text, "one ") || !strings.Contains(text, "two") {
		t.Errorf("the client read %q", text)
	}
}
