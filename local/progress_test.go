package local_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
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

// mergingZone is a zone behind a gateway, with one embedder.
type mergingZone struct {
	*gatewayHarness
	agent *local.Agent
}

// startMergingZone starts a zone whose requests wait at most delay for others.
func startMergingZone(t *testing.T, e *fakeEmbedder, delay string) *mergingZone {
	z := &mergingZone{gatewayHarness: newGatewayHarness(t)}
	z.directive.Store(&uplink.Directive{Index: 5, SpecVersion: 1, Spec: []byte(strings.Replace(specText, "policy: least_connections", "batch: {max_delay: "+delay+"}", 1))})
	z.agent = startAgent(t, func(c *local.Config) {
		z.joinGateway(c)
		c.Workers, c.Registry = []discover.Worker{{Name: "w1", URL: e.URL, GPU: "L4"}}, telemetry.NewRegistry("local", "a", "test")
	}, &fakeVLLM{name: "w1", Server: e.Server})
	z.parent.PushDirectives()
	testkit.Eventually(t, "the spec in force", func() bool { return z.agent.SpecVersion() == 1 })
	return z
}

// member is a request for embeddings sent by a gateway.
type member struct {
	mu    sync.Mutex
	steps []string
	reply chan httpReply
	leave context.CancelFunc
}

func (m *member) reportedSteps() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.steps)
}

// awaitSteps waits until the zone has reported exactly these steps.
func (m *member) awaitSteps(t *testing.T, steps ...string) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("the steps %v", steps), func() bool { return len(m.reportedSteps()) >= len(steps) })
	if got := m.reportedSteps(); !slices.Equal(got, steps) {
		t.Errorf("reported %v, want %v", got, steps)
	}
}

// sendEmbedding sends a request for embeddings.
func (z *mergingZone) sendEmbedding(text string) *member {
	m := &member{reply: make(chan httpReply, 1)}
	var ctx context.Context
	ctx, m.leave = context.WithCancel(z.t.Context())
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.steps = append(m.steps, h.Get(forward.HeaderProgress))
		return nil
	}})
	tr := forward.NewTransport(z.gateway.ClientTLS(forward.ALPN, nil))
	z.t.Cleanup(tr.CloseIdleConnections)
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+z.agent.Addr().String()+embeddingsPath, strings.NewReader(embeddingBody(text)))
	(&forward.Hop{RequestID: "r", Tenant: "acme", RetriesLeft: 1}).SetHeaders(req.Header)
	go func() {
		resp, err := tr.RoundTrip(req)
		if err != nil {
			m.reply <- httpReply{body: err.Error()}
			return
		}
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(resp.Body)
		m.reply <- httpReply{resp.StatusCode, string(text), resp.Header}
	}()
	return m
}

// TestZoneReportsMembersOfACall: a request that waits for others is reported as queued, and as started once a worker
// has the call. The same holds for an identical request. A request whose call is made at once is not reported.
func TestZoneReportsMembersOfACall(t *testing.T) {
	e := newFakeEmbedder(t)
	e.kv.Store(9) // 144 tokens, of which 172 may be promised: the first request leaves no room for another
	z := startMergingZone(t, e, "1s")
	text := func(c string, tokens int) string { return strings.Repeat(c, 4*tokens) }
	one, two, three := text("a", 125), text("b", 50), text("c", 50)
	release := e.holdAnswers()
	first := z.sendEmbedding(one)
	testkit.Eventually(t, "the engine busy", func() bool { return e.calls.Load() == 1 })
	twin := z.sendEmbedding(one) // joins a call in progress
	second, same, third := z.sendEmbedding(two), z.sendEmbedding(two), z.sendEmbedding(three)
	for _, m := range []*member{second, same, third} {
		m.awaitSteps(t, forward.ProgressQueued)
	}
	third.leave()
	testkit.Eventually(t, "the third gone", func() bool { return z.agent.PendingBatched("bge") == 4 })
	next := e.holdAnswers()
	release()
	checkVectors(t, <-first.reply, one)
	checkVectors(t, <-twin.reply, one)
	second.awaitSteps(t, forward.ProgressQueued, forward.ProgressStarted)
	same.awaitSteps(t, forward.ProgressQueued, forward.ProgressStarted)
	third.awaitSteps(t, forward.ProgressQueued)
	late := z.sendEmbedding(two) // joins a call in progress
	testkit.Eventually(t, "the last is pending", func() bool { return z.agent.PendingBatched("bge") == 3 })
	next()
	for _, m := range []*member{second, same, late} {
		checkVectors(t, <-m.reply, two)
	}
	for _, m := range []*member{first, twin, late} { // on a busy machine they may have waited long enough to be reported
		if got := m.reportedSteps(); len(got) > 0 && !slices.Equal(got, []string{forward.ProgressQueued, forward.ProgressStarted}) {
			t.Errorf("reported %v", got)
		}
	}
	unreported := 0
	for range 10 {
		m := z.sendEmbedding(two)
		checkVectors(t, <-m.reply, two)
		if len(m.reportedSteps()) == 0 {
			unreported++
		}
	}
	if unreported == 0 {
		t.Error("each call that was made at once was reported")
	}
}

// TestMergedCallThatWaitsForRoomIsAnswered: a call of several requests may wait in the zone's queue. Its members are
// reported as queued until a worker has it, and are answered.
func TestMergedCallThatWaitsForRoomIsAnswered(t *testing.T) {
	e := newFakeEmbedder(t)
	e.kv.Store(7) // 112 tokens: one request at a time
	z := startMergingZone(t, e, "1ms")
	release := e.holdAnswers()
	text := func(c string) string { return strings.Repeat(c, 400) }
	first := z.sendEmbedding(text("a"))
	testkit.Eventually(t, "the engine busy", func() bool { return e.calls.Load() == 1 })
	second := z.sendEmbedding(text("b"))
	second.awaitSteps(t, forward.ProgressQueued)
	third := z.sendEmbedding(text("c"))
	third.awaitSteps(t, forward.ProgressQueued)
	if n := e.calls.Load(); n != 1 {
		t.Fatalf("%d calls, want one: there is no room for more", n)
	}
	release()
	checkVectors(t, <-first.reply, text("a"))
	checkVectors(t, <-second.reply, text("b"))
	checkVectors(t, <-third.reply, text("c"))
	second.awaitSteps(t, forward.ProgressQueued, forward.ProgressStarted)
	third.awaitSteps(t, forward.ProgressQueued, forward.ProgressStarted)
}

// TestMergedRequestsReleaseTheirBodiesOnce: the memory charged for request bodies is released exactly once.
func TestMergedRequestsReleaseTheirBodiesOnce(t *testing.T) {
	e, reg := newFakeEmbedder(t), telemetry.NewRegistry("local", "a", "test")
	a := startBatchingAgent(t, e, reg, nil)
	held := func() float64 {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "spillway_local_request_body_bytes" {
				return f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		t.Fatal("no such metric")
		return 0
	}
	release := e.holdAnswers()
	first, second := postAsync(t.Context(), a, embeddingsPath, embeddingBody("first")), postAsync(t.Context(), a, embeddingsPath, embeddingBody("second"))
	testkit.Eventually(t, "both on the bus", func() bool { return countBatched(a) == 2 })
	if n := held(); n != float64(len(embeddingBody("first"))+len(embeddingBody("second"))) {
		t.Errorf("%v bytes are held while both wait", n)
	}
	release()
	checkVectors(t, <-first, "first")
	checkVectors(t, <-second, "second")
	testkit.Eventually(t, "both off the bus", func() bool { return countBatched(a) == 0 && isIdle(a) })
	testkit.Eventually(t, "the bodies let go of", func() bool { return held() <= 0 })
	if n := held(); n != 0 {
		t.Errorf("%v bytes are held when all is over", n)
	}
}
