package regional_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/regional"
)

// What an engine states is counted as stated; what it does not is estimated, and says so. A tenant pays either.
func TestTokensAreCountedStatedOrEstimated(t *testing.T) {
	w := newWorld(t)
	reg := prometheus.NewRegistry()
	g := w.gateway("fra", func(c *regional.Config) { c.Registry = reg })
	w.local(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("X-Case") {
		case "asked":
			sse(rw, token, token, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}`, "[DONE]")
		case "error":
			http.Error(rw, `{"error":{"message":"boom"}}`, http.StatusInternalServerError)
		default:
			sse(rw, token, token, token, "[DONE]")
		}
	}, small("small"))
	w.served(g, "small")
	for key, kind := range map[string]string{"key-acme": "asked", "key-urgent": "not", "key-europe": "error"} {
		_, _ = w.ask(g, call{key: key, body: ask, header: http.Header{"X-Case": {kind}}})
	}
	want := `# HELP spillway_regional_tokens_total Tokens of answers by model, class and kind (prompt, of which cached, and completion); source tells what engines stated from what was estimated.
# TYPE spillway_regional_tokens_total counter
spillway_regional_tokens_total{class="interactive",kind="completion",model="small",source="estimated"} 3
spillway_regional_tokens_total{class="interactive",kind="prompt",model="small",source="estimated"} 7
spillway_regional_tokens_total{class="standard",kind="cached",model="small",source="stated"} 4
spillway_regional_tokens_total{class="standard",kind="completion",model="small",source="stated"} 2
spillway_regional_tokens_total{class="standard",kind="prompt",model="small",source="stated"} 9
`
	err := errors.New("not looked at")
	for end := time.Now().Add(5 * time.Second); err != nil && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		err = testutil.GatherAndCompare(reg, strings.NewReader(want), "spillway_regional_tokens_total")
	}
	if err != nil {
		t.Error(err)
	}
}

// The gateway has the usage of every stream stated, and shows it only to who asked for it.
func TestUsageOfStreamsIsStatedAndHidden(t *testing.T) {
	w := newWorld(t)
	reg := prometheus.NewRegistry()
	g := w.gateway("fra", func(c *regional.Config) { c.Registry = reg })
	w.local(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get(relay.HeaderAskUsage) == "" && r.Header.Get("X-Asks") == "" {
			sse(rw, token, "[DONE]")
			return
		}
		sse(rw, token, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}`, "[DONE]")
	}, small("small"))
	w.served(g, "small")
	streamed := strings.Replace(ask, `{`, `{"stream":true,`, 1)
	_, hidden := w.ask(g, call{key: "key-acme", body: streamed, header: http.Header{relay.HeaderAskUsage: {"0"}}})
	asks := strings.Replace(streamed, `{`, `{"stream_options":{"include_usage":true},`, 1)
	_, shown := w.ask(g, call{key: "key-acme", body: asks, header: http.Header{"X-Asks": {"1"}}})
	if strings.Contains(hidden, "usage") || !strings.HasSuffix(hidden, "data: [DONE]\n\n") || !strings.Contains(shown, `"prompt_tokens":9`) {
		t.Errorf("the client that did not ask got %q, the one that asked %q", hidden, shown)
	}
	want := `# HELP spillway_regional_tokens_total Tokens of answers by model, class and kind (prompt, of which cached, and completion); source tells what engines stated from what was estimated.
# TYPE spillway_regional_tokens_total counter
spillway_regional_tokens_total{class="standard",kind="completion",model="small",source="stated"} 4
spillway_regional_tokens_total{class="standard",kind="prompt",model="small",source="stated"} 18
`
	eventually(t, "both streams are counted as stated", func() bool {
		return testutil.GatherAndCompare(reg, strings.NewReader(want), "spillway_regional_tokens_total") == nil
	})
}
