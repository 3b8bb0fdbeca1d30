package regional_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/regional"
	"github.com/spillway-lb/spillway/regional/billing"
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
