package local_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// moreThanBuffers is more than an answer can have on its way to a client who reads nothing: two connections' windows and buffers.
const moreThanBuffers = 1 << 20

// startChatZone starts a worker in memory that answers chats with chat, and an agent over it.
func (l *memCluster) startChatZone(chat http.HandlerFunc) *local.Agent {
	l.Helper()
	at := l.newHost()
	ln, err := l.network.Listen(at)
	if err != nil {
		l.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"data":[{"id":"m"}]}`) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "vllm:num_requests_running{engine=\"0\"} 1\n")
	})
	mux.HandleFunc("POST "+openai.PathChat, chat)
	s := &http.Server{Handler: mux}
	go func() {
		if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			l.Error(err)
		}
	}()
	l.Cleanup(func() { _ = s.Close() })
	a := startAgent(l.T, func(c *local.Config) {
		c.Listen, c.ScrapeInterval = l.newHost(), time.Second
		c.Network = memDialer{l.network.HostAt(netip.MustParseAddrPort(c.Listen).Addr()), l}
		c.Workers = []discover.Worker{{Name: "w", URL: "http://" + at}}
	})
	l.waitWithin(5*time.Second, "the worker is ready", func() bool { return countReady(a) == 1 })
	return a
}

// writeEvents writes events until so many bytes are written or the client has left.
func writeEvents(w http.ResponseWriter, bytes int) {
	w.Header().Set("Content-Type", "text/event-stream")
	event := "data: " + strings.Repeat("x", 1024) + "\n\n"
	for n := 0; n < bytes; n += len(event) {
		if _, err := io.WriteString(w, event); err != nil {
			return
		}
		w.(http.Flusher).Flush()
	}
}

// openStream asks for a stream and reads its first byte. The rest is read by the caller.
func (l *memCluster) openStream(a *local.Agent, prompt string) io.ReadCloser {
	l.Helper()
	// With a stop string it cannot be resumed: what is cut stays cut.
	body := fmt.Sprintf(`{"model":"m","stream":true,"stop":["."],"messages":[{"role":"user","content":%q}]}`, prompt)
	resp, err := l.client.Post("http://"+a.Addr().String()+openai.PathChat, "application/json", strings.NewReader(body))
	if err != nil {
		l.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil || resp.StatusCode != http.StatusOK {
		l.Fatalf("status %d: %v", resp.StatusCode, err)
	}
	return resp.Body
}

// watchReady watches for span whether the worker stays ready. It returns after how long it was not, or 0.
func watchReady(a *local.Agent, span time.Duration) (unreadyAfter time.Duration) {
	for begun := time.Now(); time.Since(begun) < span; time.Sleep(50 * time.Millisecond) {
		if countReady(a) != 1 {
			return time.Since(begun)
		}
	}
	return 0
}

// clientPause is longer than a worker may be silent, and shorter than a client may take to read.
const clientPause = 14 * time.Second

// TestSlowClientDoesNotStallItsWorker: the only client of a worker reads nothing for longer than a worker may
// be silent. The worker is not taken out, and the client has its whole answer once it reads.
func TestSlowClientDoesNotStallItsWorker(t *testing.T) {
	runInMemory(t, func(l *memCluster) {
		a := l.startChatZone(func(w http.ResponseWriter, _ *http.Request) {
			writeEvents(w, moreThanBuffers)
			_, _ = io.WriteString(w, "data: [DONE]\n\n")
		})
		for range 2 {
			body := l.openStream(a, "hi")
			if after := watchReady(a, clientPause); after > 0 {
				l.Errorf("%v after its only client stopped reading the worker is %+v", after, a.Status().Workers[0])
			}
			text, err := io.ReadAll(body)
			_ = body.Close()
			if err != nil || len(text) < moreThanBuffers || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
				l.Errorf("the slow client has %d bytes (%v), which end with %q", len(text), err, text[max(0, len(text)-40):])
			}
			if after := watchReady(a, 2*time.Second); after > 0 {
				l.Errorf("after the answer the worker is %+v", a.Status().Workers[0])
			}
		}
	})
}

// TestStallClockRestartsWhenClientReadsAgain: the worker is silent while its client reads nothing. Once the client has
// read what there is, the worker has the usual stall time, and no more.
func TestStallClockRestartsWhenClientReadsAgain(t *testing.T) {
	runInMemory(t, func(l *memCluster) {
		const stall = 10 * time.Second // health.Config's default
		a := l.startChatZone(func(w http.ResponseWriter, r *http.Request) {
			writeEvents(w, moreThanBuffers)
			<-r.Context().Done()
		})
		body := l.openStream(a, "hi")
		defer func() { _ = body.Close() }()
		if after := watchReady(a, clientPause); after > 0 {
			l.Fatalf("not ready after %v of a client that reads nothing", after)
		}
		text := make(chan string)
		go func() {
			b, _ := io.ReadAll(body)
			text <- string(b)
		}()
		after := watchReady(a, time.Minute)
		if after < stall || after > 3*stall {
			l.Errorf("the silent worker is not ready after %v, want from %v to %v", after, stall, 3*stall)
		}
		if b := <-text; !strings.Contains(b, "error") {
			l.Errorf("the stream ended with %q", b[max(0, len(b)-80):])
		}
	})
}

// TestSlowClientDoesNotHideAStall: one client reads nothing, another waits for a worker that emits nothing.
func TestSlowClientDoesNotHideAStall(t *testing.T) {
	runInMemory(t, func(l *memCluster) {
		a := l.startChatZone(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			if strings.Contains(string(b), "slow") {
				writeEvents(w, moreThanBuffers)
			} else {
				writeEvents(w, 1)
			}
			<-r.Context().Done()
		})
		slow := l.openStream(a, "slow")
		defer func() { _ = slow.Close() }()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		waits := l.openStream(a, "quick")
		context.AfterFunc(ctx, func() { _ = waits.Close() })
		ended := make(chan time.Duration)
		begun := time.Now()
		go func() {
			_, _ = io.Copy(io.Discard, waits)
			ended <- time.Since(begun)
		}()
		if after := watchReady(a, clientPause); after == 0 {
			l.Errorf("a slow client kept a stalled worker in for %v", clientPause)
		}
		if took := <-ended; took > 2*clientPause {
			l.Errorf("the other's stream ended after %v", took)
		}
	})
}

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
