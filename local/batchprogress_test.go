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

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

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

func (m *member) reported() []string { m.mu.Lock(); defer m.mu.Unlock(); return slices.Clone(m.steps) }

// awaits waits until the zone has reported exactly these steps.
func (m *member) awaits(t *testing.T, steps ...string) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("the steps %v", steps), func() bool { return len(m.reported()) >= len(steps) })
	if got := m.reported(); !slices.Equal(got, steps) {
		t.Errorf("reported %v, want %v", got, steps)
	}
}

// send sends a request for embeddings.
func (z *mergingZone) send(text string) *member {
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
	first := z.send(one)
	testkit.Eventually(t, "the engine busy", func() bool { return e.calls.Load() == 1 })
	twin := z.send(one) // joins a call in progress
	second, same, third := z.send(two), z.send(two), z.send(three)
	for _, m := range []*member{second, same, third} {
		m.awaits(t, forward.ProgressQueued)
	}
	third.leave()
	testkit.Eventually(t, "the third gone", func() bool { return z.agent.PendingBatched("bge") == 4 })
	next := e.holdAnswers()
	release()
	checkVectors(t, <-first.reply, one)
	checkVectors(t, <-twin.reply, one)
	second.awaits(t, forward.ProgressQueued, forward.ProgressStarted)
	same.awaits(t, forward.ProgressQueued, forward.ProgressStarted)
	third.awaits(t, forward.ProgressQueued)
	late := z.send(two) // joins a call in progress
	testkit.Eventually(t, "the last is pending", func() bool { return z.agent.PendingBatched("bge") == 3 })
	next()
	for _, m := range []*member{second, same, late} {
		checkVectors(t, <-m.reply, two)
	}
	for _, m := range []*member{first, twin, late} { // on a busy machine they may have waited long enough to be reported
		if got := m.reported(); len(got) > 0 && !slices.Equal(got, []string{forward.ProgressQueued, forward.ProgressStarted}) {
			t.Errorf("reported %v", got)
		}
	}
	unreported := 0
	for range 10 {
		m := z.send(two)
		checkVectors(t, <-m.reply, two)
		if len(m.reported()) == 0 {
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
	first := z.send(text("a"))
	testkit.Eventually(t, "the engine busy", func() bool { return e.calls.Load() == 1 })
	second := z.send(text("b"))
	second.awaits(t, forward.ProgressQueued)
	third := z.send(text("c"))
	third.awaits(t, forward.ProgressQueued)
	if n := e.calls.Load(); n != 1 {
		t.Fatalf("%d calls, want one: there is no room for more", n)
	}
	release()
	checkVectors(t, <-first.reply, text("a"))
	checkVectors(t, <-second.reply, text("b"))
	checkVectors(t, <-third.reply, text("c"))
	second.awaits(t, forward.ProgressQueued, forward.ProgressStarted)
	third.awaits(t, forward.ProgressQueued, forward.ProgressStarted)
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
