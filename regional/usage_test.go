package regional_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional"
	"github.com/spillway-lb/spillway/regional/billing"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// Usage that an engine reports is counted as reported; other usage is estimated and marked so. A tenant is charged
// for both.
func TestTokensAreCountedAsReportedOrEstimated(t *testing.T) {
	w := newWorld(t)
	reg := prometheus.NewRegistry()
	g := w.startGateway("fra", func(c *regional.Config) { c.Registry = reg })
	w.startLocal(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("X-Case") {
		case "asked":
			writeEvents(rw, tokenEvent, tokenEvent, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}`, "[DONE]")
		case "error":
			http.Error(rw, `{"error":{"message":"boom"}}`, http.StatusInternalServerError)
		default:
			writeEvents(rw, tokenEvent, tokenEvent, tokenEvent, "[DONE]")
		}
	}, roomyModel("small"))
	w.waitUntilServed(g, "small")
	for key, kind := range map[string]string{"key-acme": "asked", "key-urgent": "not", "key-europe": "error"} {
		_, _ = w.getAnswer(g, clientCall{key: key, body: askBody, header: http.Header{"X-Case": {kind}}})
	}
	want := `# HELP spillway_regional_tokens_total Tokens by model, class and kind (prompt, of which cached, and completion); source separates counts of the engine from estimates.
# TYPE spillway_regional_tokens_total counter
spillway_regional_tokens_total{class="interactive",kind="completion",model="small",source="estimated"} 3
spillway_regional_tokens_total{class="interactive",kind="prompt",model="small",source="estimated"} 7
spillway_regional_tokens_total{class="standard",kind="cached",model="small",source="stated"} 4
spillway_regional_tokens_total{class="standard",kind="completion",model="small",source="stated"} 2
spillway_regional_tokens_total{class="standard",kind="prompt",model="small",source="stated"} 9
`
	testkit.EventuallySucceeds(t, testkit.WaitBound, "all tokens are counted", func() error {
		return testutil.GatherAndCompare(reg, strings.NewReader(want), "spillway_regional_tokens_total")
	})
}

// The gateway requests usage from engines on every stream, and removes it for clients that did not ask.
func TestStreamUsageIsRequestedAndHidden(t *testing.T) {
	w := newWorld(t)
	reg := prometheus.NewRegistry()
	g := w.startGateway("fra", func(c *regional.Config) { c.Registry = reg })
	w.startLocal(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get(forward.HeaderAskUsage) == "" && r.Header.Get("X-Asks") == "" {
			writeEvents(rw, tokenEvent, "[DONE]")
			return
		}
		writeEvents(rw, tokenEvent, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}`, "[DONE]")
	}, roomyModel("small"))
	w.waitUntilServed(g, "small")
	streamed := strings.Replace(askBody, `{`, `{"stream":true,`, 1)
	_, hidden := w.getAnswer(g, clientCall{key: "key-acme", body: streamed, header: http.Header{forward.HeaderAskUsage: {"0"}}})
	asks := strings.Replace(streamed, `{`, `{"stream_options":{"include_usage":true},`, 1)
	_, shown := w.getAnswer(g, clientCall{key: "key-acme", body: asks, header: http.Header{"X-Asks": {"1"}}})
	if strings.Contains(hidden, "usage") || !strings.HasSuffix(hidden, "data: [DONE]\n\n") || !strings.Contains(shown, `"prompt_tokens":9`) {
		t.Errorf("the client that did not ask got %q, the one that asked %q", hidden, shown)
	}
	want := `# HELP spillway_regional_tokens_total Tokens by model, class and kind (prompt, of which cached, and completion); source separates counts of the engine from estimates.
# TYPE spillway_regional_tokens_total counter
spillway_regional_tokens_total{class="standard",kind="completion",model="small",source="stated"} 4
spillway_regional_tokens_total{class="standard",kind="prompt",model="small",source="stated"} 18
`
	testkit.Eventually(t, "both streams are counted as stated", func() bool {
		return testutil.GatherAndCompare(reg, strings.NewReader(want), "spillway_regional_tokens_total") == nil
	})
}

// A gRPC call and a WebSocket leave one usage record each, with the bytes transferred. Those that no worker
// accepted leave none.
func TestPassthroughUsageIsRecordedOnce(t *testing.T) {
	w := newWorld(t)
	dir, reg := t.TempDir(), prometheus.NewRegistry()
	g := w.startGateway("fra", func(c *regional.Config) { c.UsageDir, c.Registry = dir, reg })
	callee := newGRPCWorker(t)
	url, _ := startEchoWorker(t, startSimWorker(t))
	w.zoneOf(g, config.WorkerEntry{Name: "w1", URL: url, GRPC: "http://" + callee.addr, Weight: 1})
	chat := clientCall{key: "key-acme", body: askBody}
	testkit.Eventually(t, "the zone serves", func() bool { resp, _ := w.getAnswer(g, chat); return resp.StatusCode == 200 })
	conn := w.dialGRPC(g, insecure.NewCredentials())
	in, out := encodeInferRequest("small"), []byte(nil)
	requireNoError(t, conn.Invoke(withAPIKey(t.Context()), inferMethod, &in, &out))
	if err := conn.Invoke(withAPIKey(t.Context()), inferMethod, &[]byte{0x12, 1, 'x'}, &out); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	resp, c, r := dialWebSocket(t, g, "/v1/realtime?model=small", "key-europe")
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp.StatusCode)
	}
	expectLine(t, r, "hello")
	_, _ = io.WriteString(c, "one\n")
	expectLine(t, r, "re:one")
	_, _ = io.WriteString(c, "bye\n")
	_, _ = io.ReadAll(r)
	if resp, _, _ := dialWebSocket(t, g, "/v1/realtime?model=small&deny=1", "key-europe"); resp.StatusCode != http.StatusTeapot {
		t.Error(resp.StatusCode)
	}
	requireNoError(t, conn.Close())
	requireNoError(t, g.Stop(stopContext(t)))
	got, err := billing.ReadFiles([]string{dir}, []string{"tenant"})
	requireNoError(t, err)
	frame := int64(5 + len(in))
	a, e := got.Totals[billing.TotalKey{Tenant: "acme"}], got.Totals[billing.TotalKey{Tenant: "europe"}]
	if a.BytesIn != frame || a.BytesOut != frame+3 || a.Prompt < int64(len(in))/4 || got.Missing+got.Duplicates != 0 {
		t.Errorf("the call left %+v, want %d bytes in; %+v", a, frame, got)
	}
	if want := (billing.Total{Requests: 1, Estimated: 1, BytesIn: 8, BytesOut: 13}); e != want {
		t.Errorf("the WebSocket left %+v, want %+v", e, want)
	}
	if n := readMetric(t, reg, "spillway_regional_usage_bytes_total", "in"); n != float64(frame) && n != 8 {
		t.Errorf("%v bytes are counted", n)
	}
}

// longPromptBody is a request of about 7,500 tokens.
func longPromptBody() string {
	return strings.Replace(askBody, "secret", strings.Repeat("word ", 6000), 1)
}

// declareTokenLimitedTenants declares tenants that may use 10,000 tokens in a minute.
func (w *testWorld) declareTokenLimitedTenants(names ...string) {
	text := ""
	for _, name := range names {
		text += tenantYAML(name, "limits: {tokens_per_minute: 10000}")
	}
	w.appendToSpec(text)
}

// TestClientThatLeavesIsChargedForStartedPrompt: requests whose clients disconnect before the first byte count
// against the limits of their tenant and appear in the usage records.
func TestClientThatLeavesIsChargedForStartedPrompt(t *testing.T) {
	w := newWorld(t)
	w.declareTokenLimitedTenants("leaver")
	dir := t.TempDir()
	g := w.startGateway("fra", func(c *regional.Config) { c.UsageDir = dir })
	l := w.startLocal(g, "fra", "fra-a", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, roomyModel("small"))
	w.waitUntilServed(g, "small")
	begun, refused := 0, 0
	for range 30 {
		ctx, leave := context.WithCancel(context.Background())
		answers := make(chan *http.Response, 1)
		go func() {
			resp, err := w.sendCall(ctx, g, clientCall{key: "key-leaver", body: longPromptBody()})
			if err == nil {
				_ = resp.Body.Close()
			}
			answers <- resp
		}()
		select {
		case <-l.requests:
			<-l.bodies
			begun++
			testkit.Eventually(t, "the request is sent", func() bool { sent, _ := g.CountAttempts(); return sent == 1 })
			leave()
			<-answers
			testkit.Eventually(t, "the attempt has ended", func() bool { sent, _ := g.CountAttempts(); return sent == 0 })
		case resp := <-answers:
			if resp != nil && resp.StatusCode == http.StatusTooManyRequests {
				refused++
			}
		}
		leave()
	}
	if begun > 2 || begun+refused != 30 {
		t.Errorf("%d requests were begun and %d refused, want at most 2 begun and all others refused", begun, refused)
	}
	requireNoError(t, g.Stop(stopContext(t)))
	r, err := billing.ReadFiles([]string{dir}, []string{"tenant"})
	requireNoError(t, err)
	got := r.Totals[billing.TotalKey{Tenant: "leaver"}]
	if got.Requests != int64(begun) || got.Prompt < 7000*got.Requests || got.Completion != 0 || got.Estimated != got.Requests {
		t.Errorf("recorded %+v, want the prompts of %d requests", got, begun)
	}
}

// TestClientThatLeavesWhileQueuedIsNotCharged: when a client disconnects, its prompt is charged if a worker has
// started it, and not if the zone still had it queued. Requests of the gateway's own region and spilled requests
// are charged alike.
func TestClientThatLeavesWhileQueuedIsNotCharged(t *testing.T) {
	for _, spilled := range []bool{false, true} {
		for i, c := range []struct {
			steps []string
			want  int
		}{
			{nil, http.StatusTooManyRequests},
			{[]string{forward.ProgressQueued}, http.StatusOK},
			{[]string{forward.ProgressQueued, forward.ProgressStarted}, http.StatusTooManyRequests},
		} {
			t.Run(fmt.Sprintf("spilled=%v/%d", spilled, i), func(t *testing.T) { checkChargeAfterLeaving(t, spilled, c.steps, c.want) })
		}
	}
}

// checkChargeAfterLeaving disconnects a client after the zone has reported steps, and checks the response to a
// later request.
func checkChargeAfterLeaving(t *testing.T, spilled bool, steps []string, want int) {
	var w *testWorld
	var from, to *regional.Gateway
	region := "fra"
	if spilled {
		r := newPeerRegions(t, nil)
		w, from, to, region = r.testWorld, r.fra, r.iad, "iad"
	} else {
		w = newWorld(t)
		from = w.startGateway("fra", nil)
		to = from
	}
	w.declareTokenLimitedTenants("leaver")
	step := make(chan string)
	l := w.startLocal(to, region, region+"-a", func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Stays") != "" {
			replyCompletion(rw, r)
			return
		}
		for {
			select {
			case s := <-step:
				forward.WriteProgress(rw, s)
			case <-r.Context().Done():
				return
			}
		}
	}, roomyModel("small"))
	w.waitUntilServed(to, "small")
	testkit.Eventually(t, "the zone serves", func() bool {
		resp, _ := w.getAnswer(from, clientCall{key: "key-acme", body: askBody, header: http.Header{"X-Stays": {"1"}}})
		return resp.StatusCode == http.StatusOK
	})
	for _, g := range []*regional.Gateway{from, to} {
		testkit.Eventually(t, "the tenant is known", func() bool {
			resp, _ := w.getAnswer(g, clientCall{method: "GET", path: "/v1/models", key: "key-leaver"})
			return resp.StatusCode == http.StatusOK
		})
	}
	for len(l.requests) > 0 {
		<-l.requests
	}
	ctx, leave := context.WithCancel(context.Background())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if resp, err := w.sendCall(ctx, from, clientCall{key: "key-leaver", body: longPromptBody()}); err == nil {
			_ = resp.Body.Close()
			t.Errorf("the request was answered %d", resp.StatusCode)
		}
	}()
	select {
	case <-l.requests:
	case <-gone:
		t.FailNow()
	}
	testkit.Eventually(t, "the request is sent", func() bool { sent, _ := from.CountAttempts(); return sent == 1 })
	for _, s := range steps {
		step <- s
		queues := 0
		if s == forward.ProgressQueued {
			queues = 1
		}
		testkit.Eventually(t, "the gateway knows that it is "+s, func() bool { _, queued := from.CountAttempts(); return queued == queues })
	}
	leave()
	<-gone
	testkit.Eventually(t, "the attempt has ended", func() bool { sent, _ := from.CountAttempts(); return sent == 0 })
	resp, body := w.getAnswer(from, clientCall{key: "key-leaver", body: longPromptBody(), header: http.Header{"X-Stays": {"1"}}})
	if resp.StatusCode != want || want == http.StatusTooManyRequests && errorCode(body) != openai.CodeTokens {
		t.Errorf("after %v the next request was answered %d %s, want %d", steps, resp.StatusCode, body, want)
	}
}

// TestClientThatLeavesSpendsDayBudget: a started prompt counts against the daily budget.
func TestClientThatLeavesSpendsDayBudget(t *testing.T) {
	w := newWorld(t)
	w.appendToSpec(tenantYAML("leaver", "budget: {tokens_per_day: 7600, "+noonOffset()+"}"))
	g := w.startGateway("fra", nil)
	l := w.startLocal(g, "fra", "fra-a", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, roomyModel("small"))
	w.waitUntilServed(g, "small")
	w.changeDirective(func(*uplink.Directive) {})
	ctx, leave := context.WithCancel(context.Background())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if resp, err := w.sendCall(ctx, g, clientCall{key: "key-leaver", body: longPromptBody()}); err == nil {
			_ = resp.Body.Close()
			t.Errorf("the request was answered %d", resp.StatusCode)
		}
	}()
	select {
	case <-l.requests:
	case <-gone:
		t.FailNow()
	}
	testkit.Eventually(t, "the request is sent", func() bool { sent, _ := g.CountAttempts(); return sent == 1 })
	leave()
	<-gone
	testkit.Eventually(t, "the attempt has ended", func() bool { sent, _ := g.CountAttempts(); return sent == 0 })
	if resp, body := w.getAnswer(g, clientCall{key: "key-leaver", body: longPromptBody()}); resp.StatusCode != 429 || errorCode(body) != openai.CodeQuota {
		t.Errorf("with its budget spent it was answered %d %s", resp.StatusCode, body)
	}
}

// readTotal stops a gateway and returns the total of a tenant's usage records.
func readTotal(t *testing.T, g *regional.Gateway, dir, tenant string) billing.Total {
	t.Helper()
	requireNoError(t, g.Stop(stopContext(t)))
	r, err := billing.ReadFiles([]string{dir}, []string{"tenant"})
	requireNoError(t, err)
	return r.Totals[billing.TotalKey{Tenant: tenant}]
}

// TestCallThatItsClientLeavesPaysForTheBegunPrompt: a gRPC call is charged once a worker has its first message,
// whether the client disconnects or the deadline ends it. A call without any message and a WebSocket before its
// upgrade are not charged.
func TestCallThatItsClientLeavesPaysForTheBegunPrompt(t *testing.T) {
	streams := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	for name, c := range map[string]struct {
		method string
		sends  bool
		late   bool
		want   int64 // requests in the usage records
	}{
		"the message is sent":                 {method: "/any.Service/ReadAndHang", sends: true, want: 1},
		"the message is sent, and a deadline": {method: "/any.Service/ReadAndHang", sends: true, late: true, want: 1},
		"nothing is sent":                     {method: "/any.Service/Hang"},
		"nothing is sent, and a deadline":     {method: "/any.Service/Hang", late: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			dir := t.TempDir()
			g := w.startGateway("fra", func(c *regional.Config) { c.UsageDir = dir })
			callee := newGRPCWorker(t)
			w.zoneOf(g, config.WorkerEntry{Name: "w1", URL: startSimWorker(t), GRPC: "http://" + callee.addr, Weight: 1})
			conn := w.dialGRPC(g, insecure.NewCredentials())
			waitForZoneSpec(t, conn)
			<-callee.metadata
			pairs := []string{"x-model", "small"}
			if c.late {
				pairs = append(pairs, "x-spillway-deadline-ms", "500")
			}
			ctx, leave := context.WithCancel(withKey(t.Context(), "key-europe", pairs...))
			defer leave()
			s, err := conn.NewStream(ctx, streams, c.method)
			requireNoError(t, err)
			in := encodeInferRequest("small")
			if c.sends {
				requireNoError(t, s.SendMsg(&in))
				<-callee.proceed
				if !c.late {
					testkit.Eventually(t, "the message is sent", func() bool { sent, _ := g.CountAttempts(); return sent == 1 })
				}
			} else {
				<-callee.metadata
			}
			if !c.late {
				leave()
			}
			var out []byte
			if err := s.RecvMsg(&out); err == nil {
				t.Errorf("the call was answered %q", out)
			}
			testkit.Eventually(t, "the worker's call has ended", func() bool { return callee.openCalls.Load() == 0 })
			got := readTotal(t, g, dir, "europe")
			if got.Requests != c.want || c.want > 0 && (got.Prompt < int64(len(in))/4 || got.BytesIn != int64(5+len(in)) || got.Completion != 0) {
				t.Errorf("recorded %+v, want the prompt of %d requests of %d bytes", got, c.want, len(in))
			}
		})
	}
}

// TestCallThatLeavesAQueueIsNotCharged: the prompt of a gRPC call is charged once its zone has dispatched it to a
// worker, and not while the zone has it queued.
func TestCallThatLeavesAQueueIsNotCharged(t *testing.T) {
	for steps, want := range map[string]int64{
		"":                     1,
		forward.ProgressQueued: 0,
		forward.ProgressQueued + " " + forward.ProgressStarted: 1,
	} {
		t.Run(steps, func(t *testing.T) {
			w := newWorld(t)
			dir := t.TempDir()
			g := w.startGateway("fra", func(c *regional.Config) { c.UsageDir = dir })
			step := make(chan string)
			l := w.startLocal(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
				for {
					select {
					case s := <-step:
						forward.WriteProgress(rw, s)
					case <-r.Context().Done():
						return
					}
				}
			}, roomyModel("small"))
			w.waitUntilServed(g, "small")
			conn := w.dialGRPC(g, insecure.NewCredentials())
			ctx, leave := context.WithCancel(withKey(t.Context(), "key-europe"))
			defer leave()
			in, out, gone := encodeInferRequest("small"), []byte(nil), make(chan error)
			go func() { gone <- conn.Invoke(ctx, inferMethod, &in, &out) }()
			select {
			case <-l.requests:
			case err := <-gone:
				t.Fatal(err)
			}
			testkit.Eventually(t, "the message is sent", func() bool { sent, _ := g.CountAttempts(); return sent == 1 })
			for _, s := range strings.Fields(steps) {
				step <- s
				queues := 0
				if s == forward.ProgressQueued {
					queues = 1
				}
				testkit.Eventually(t, "the gateway knows that it is "+s, func() bool { _, queued := g.CountAttempts(); return queued == queues })
			}
			leave()
			<-gone
			testkit.Eventually(t, "the attempt has ended", func() bool { sent, _ := g.CountAttempts(); return sent == 0 })
			if got := readTotal(t, g, dir, "europe"); got.Requests != want || want > 0 && got.Prompt < int64(len(in))/4 {
				t.Errorf("recorded %+v, want %d requests", got, want)
			}
		})
	}
}

// TestWebSocketThatItsClientLeavesIsNotCharged: until the upgrade is answered, a worker has received only the
// request head.
func TestWebSocketThatItsClientLeavesIsNotCharged(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	g := w.startGateway("fra", func(c *regional.Config) { c.UsageDir = dir })
	url, _ := startEchoWorker(t, startSimWorker(t))
	w.zoneOf(g, config.WorkerEntry{Name: "w1", URL: url, Weight: 1})
	chat := clientCall{key: "key-acme", body: askBody}
	testkit.Eventually(t, "the zone serves", func() bool { resp, _ := w.getAnswer(g, chat); return resp.StatusCode == 200 })
	c, err := net.Dial("tcp", g.HTTPAddr().String())
	requireNoError(t, err)
	_, _ = io.WriteString(c, "GET /v1/realtime?model=small&hang=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer key-europe\r\n"+
		"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: abc\r\nSec-WebSocket-Version: 13\r\n\r\n")
	testkit.Eventually(t, "the worker has it", func() bool { return hanging.Load() == 1 })
	requireNoError(t, c.Close())
	testkit.Eventually(t, "the worker has lost it", func() bool { return hanging.Load() == 0 })
	if got := readTotal(t, g, dir, "europe"); got != (billing.Total{}) {
		t.Errorf("recorded %+v, want nothing", got)
	}
}
