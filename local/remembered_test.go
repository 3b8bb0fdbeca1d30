package local_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/timed"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// TestCutStreamWaitsForRestartingWorker: the other worker has just been restarted and shows nothing yet when a stream is cut. The
// stream goes on there once it is ready, because what engine it is was remembered. Behind a gateway the zone waits too.
func TestCutStreamWaitsForRestartingWorker(t *testing.T) {
	for _, gateway := range []bool{false, true} {
		t.Run(fmt.Sprintf("behind a gateway %v", gateway), func(t *testing.T) { waitForRestart(t, gateway, true, time.Minute, 0) })
	}
}

// TestAStreamIsHandedBackToTheGateway: a zone waits a short time at most for a worker that is down, and not past the deadline of
// the request. It then ends the stream for want of a place, and not of an engine, so that its gateway goes on elsewhere.
func TestAStreamIsHandedBackToTheGateway(t *testing.T) {
	began := time.Now()
	waitForRestart(t, true, false, 50*time.Millisecond, 0)
	timed.AssertWithin(t, "the wait behind a gateway", time.Since(began), 9*time.Second)
	began = time.Now()
	waitForRestart(t, true, false, time.Minute, 2*time.Second)
	timed.AssertWithin(t, "the wait until the deadline", time.Since(began), 9*time.Second)
}

// waitForRestart cuts a stream while the only other worker is away, which may come back. 0: the request has no deadline.
func waitForRestart(t *testing.T, gateway, comes bool, wait, deadline time.Duration) {
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
	p := newGatewayHarness(t)
	reg := telemetry.NewRegistry("local", "a", "test")
	a := startAgent(t, func(c *local.Config) {
		if gateway {
			p.joinGateway(c)
		}
		c.Workers, c.Registry = []discover.Worker{one, two}, reg
	})
	a.SetResumeWait(wait)
	testkit.Eventually(t, "both are ready", func() bool { return countReady(a) == 2 })
	away.Store(true)
	testkit.Eventually(t, "one is away", func() bool { return countReady(a) == 1 })
	two.Weight = 2 // declared again while it is away
	a.SetWorkers([]discover.Worker{one, two})
	done := make(chan string)
	go func() {
		const body = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`
		var text string
		if gateway {
			_, text, _ = p.postFromGateway(p.gateway, a, forward.Hop{RequestID: "r", Tenant: "acme", RetriesLeft: 1, Deadline: deadline}, body)
		} else {
			_, text = postChat(t, a, body)
		}
		done <- text
	}()
	<-hit
	close(cut)
	testkit.Eventually(t, "the loss is noticed", func() bool { return workerStatus(a, "w1").InFlight == 0 })
	if !comes {
		text := <-done
		if !strings.Contains(text, "one ") || !strings.Contains(text, "error") {
			t.Errorf("the gateway read %q", text)
		}
		const name = "spillway_local_resumes_total"
		want := "# HELP " + name + " Streams whose worker failed, by outcome (resumed, ended: only the end was missing, failed, not: not attempted) and the reason if not resumed.\n# TYPE " + name + " counter\n" + name + `{outcome="not",reason="no_place"} 1` + "\n"
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), name); err != nil {
			t.Error(err)
		}
		return
	}
	away.Store(false)
	if text := <-done; strings.Contains(text, "error") || !strings.Contains(text, "one ") || !strings.Contains(text, "two") {
		t.Errorf("the client read %q", text)
	}
}
