package regional_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/regional"
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
	err := errors.New("not looked at")
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		err = testutil.GatherAndCompare(reg, strings.NewReader(want), "spillway_regional_tokens_total")
	}
	if err != nil {
		t.Error(err)
	}
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
