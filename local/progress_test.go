package local_test

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// TestZoneReportsQueueProgressToTheGateway: the gateway learns that a request waits and that it has left the queue for a worker. A request that
// goes to a worker at once costs no interim answer, and a client of a plain zone gets none.
func TestZoneReportsQueueProgressToTheGateway(t *testing.T) {
	p := newGatewayHarness(t)
	w := newFakeVLLM(t, "w1")
	w.kvBlocks = 4
	a := startAgent(t, p.joinGateway, w)
	w.setMode("hold")
	body := `{"model":"llama-3.1-8b","stream":true,"max_tokens":40,"messages":[{"role":"user","content":"hi"}]}`
	var mu sync.Mutex
	reports := map[string][]string{}
	seen := func(id string) []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(reports[id]) }
	var all sync.WaitGroup
	send := func(id string) {
		all.Go(func() {
			tr := forward.NewTransport(p.gateway.ClientTLS(forward.ALPN, nil))
			defer tr.CloseIdleConnections()
			ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
				Got1xxResponse: func(status int, h textproto.MIMEHeader) error {
					mu.Lock()
					defer mu.Unlock()
					if status != http.StatusProcessing {
						t.Errorf("interim status %d", status)
					}
					reports[id] = append(reports[id], h.Get(forward.HeaderProgress))
					return nil
				},
			})
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+a.Addr().String()+"/v1/chat/completions", strings.NewReader(body))
			(&forward.Hop{RequestID: id, Tenant: "acme", RetriesLeft: 1}).SetHeaders(req.Header)
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = resp.Body.Close() }()
			if resp.StatusCode != http.StatusOK || resp.Header.Get(forward.HeaderProgress) != "" {
				t.Errorf("%s was answered %d %v", id, resp.StatusCode, resp.Header)
			}
		})
	}
	send("first")
	testkit.Eventually(t, "one running", func() bool { return w.running.Load() == 1 })
	send("second")
	testkit.Eventually(t, "the second is reported as queued", func() bool { return slices.Equal(seen("second"), []string{forward.ProgressQueued}) })
	w.release <- struct{}{}
	testkit.Eventually(t, "the second is reported as started", func() bool {
		return slices.Equal(seen("second"), []string{forward.ProgressQueued, forward.ProgressStarted})
	})
	w.release <- struct{}{}
	all.Wait()
	if got := seen("first"); len(got) != 0 {
		t.Errorf("of the request that did not wait the zone reported %v", got)
	}
}

// TestZoneReportsQueueProgressOfGRPCCalls: a gRPC call that waits is reported as a request is that was read.
func TestZoneReportsQueueProgressOfGRPCCalls(t *testing.T) {
	p := newGatewayHarness(t)
	w := newFakeVLLM(t, "w1")
	w.kvBlocks = 4
	a := startAgent(t, p.joinGateway, w)
	w.setMode("hold")
	tr := forward.NewTransport(p.gateway.ClientTLS(forward.ALPN, nil))
	defer tr.CloseIdleConnections()
	reports := make(chan string, 10)
	send := func(path, content, body string) {
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(_ int, h textproto.MIMEHeader) error { reports <- h.Get(forward.HeaderProgress); return nil },
		})
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+a.Addr().String()+path, strings.NewReader(body))
		req.Header.Set("Content-Type", content)
		(&forward.Hop{RequestID: path, Tenant: "acme", Model: "llama-3.1-8b", PromptTokens: 60}).SetHeaders(req.Header)
		if resp, err := tr.RoundTrip(req); err == nil {
			_ = resp.Body.Close()
		}
	}
	var all sync.WaitGroup
	all.Go(func() {
		send("/v1/chat/completions", "application/json", `{"model":"llama-3.1-8b","stream":true,"max_tokens":40,"messages":[{"role":"user","content":"hi"}]}`)
	})
	testkit.Eventually(t, "one running", func() bool { return w.running.Load() == 1 })
	all.Go(func() {
		send("/inference.GRPCInferenceService/ModelInfer", "application/grpc", "\x00\x00\x00\x00\x02hi")
	})
	reported := func(want string) {
		select {
		case got := <-reports:
			if got != want {
				t.Errorf("the call is reported as %q, want %q", got, want)
			}
		case <-time.After(time.Minute):
			t.Errorf("the call is not reported as %q", want)
		}
	}
	reported(forward.ProgressQueued)
	w.release <- struct{}{}
	reported(forward.ProgressStarted)
	all.Wait()
}
