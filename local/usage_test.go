package local_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
)

const usageRequestedChat = `{"model":"llama-3.1-8b","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}`

// A stream's usage is counted whether its client asked or not, and shown to who asked.
func TestUsageIsCountedAndShownOnlyWhenRequested(t *testing.T) {
	off := false
	for name, tc := range map[string]struct {
		mode, body    string
		spec          *spec.Spec
		stated, shown bool
		posts         int64 // that the worker answered with a stream or a refusal, for two requests
	}{
		"not asked":           {"usage", streamedChat, nil, true, false, 2},
		"asked":               {"usage", usageRequestedChat, nil, true, true, 2},
		"switched off":        {"usage", streamedChat, &spec.Spec{Routing: spec.Routing{UsageInStreams: &off}}, false, false, 2},
		"a worker refuses it": {"strict", streamedChat, nil, false, false, 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeVLLM(t, "w1")
			w.setMode(tc.mode)
			reg := telemetry.NewRegistry("local", "a", "test")
			a := startAgent(t, func(c *local.Config) { c.Registry, c.Spec = reg, tc.spec }, w)
			before := w.posts.Load()
			for range 2 {
				resp, text := postChat(t, a, tc.body)
				if resp.StatusCode != http.StatusOK || !strings.HasSuffix(text, "data: [DONE]\n\n") || strings.Count(text, "content") != 4 {
					t.Fatalf("%d %q", resp.StatusCode, text)
				}
				if shown := strings.Contains(text, "usage"); shown != tc.shown {
					t.Errorf("the client got %q", text)
				}
			}
			if n := w.posts.Load() - before; n != tc.posts {
				t.Errorf("the worker was sent %d requests, want %d", n, tc.posts)
			}
			source := map[bool]string{true: "stated", false: "estimated"}[tc.stated]
			testkit.Eventually(t, "the completions counted as "+source, func() bool { return countCompletionTokens(reg, source) == 8 })
		})
	}
}

// countCompletionTokens are the output tokens that were counted from a source.
func countCompletionTokens(reg *prometheus.Registry, source string) (sum float64) {
	families, err := reg.Gather()
	if err != nil {
		return -1
	}
	for _, f := range families {
		if f.GetName() != "spillway_local_tokens_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["kind"] == "completion" && labels["source"] == source {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// TestClientsCannotGrowMetrics: 300 unknown models, users, sessions and classes create no series. Tokens are counted
// although no client asked for usage.
func TestClientsCannotGrowMetrics(t *testing.T) {
	var cfg local.Config
	a := startAgent(t, func(c *local.Config) { cfg = *c }, newFakeVLLM(t, "w1"))
	postChat(t, a, streamedChat)
	postChat(t, a, `{"model":"unlisted","messages":[]}`)
	count := func() (n int) {
		families, err := cfg.Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			n += len(f.GetMetric())
		}
		return n
	}
	testkit.Eventually(t, "tokens are counted", func() bool { return sumMetric(t, cfg, "spillway_local_tokens_total") > 0 })
	before := count()
	for i := range 300 {
		body := fmt.Sprintf(`{"model":"m%d","user":"u%d","messages":[]}`, i, i)
		if i%2 == 0 {
			body = fmt.Sprintf(`{"model":"llama-3.1-8b","stream":true,"user":"u%d","messages":[{"role":"user","content":"hi"}]}`, i)
		}
		req, _ := http.NewRequest(http.MethodPost, "http://"+a.Addr().String()+"/v1/chat/completions", strings.NewReader(body))
		for _, name := range []string{"X-Session-Id", "X-Tenant", "X-Request-Id", "Spillway-Tenant", "User-Agent"} {
			req.Header.Set(name, fmt.Sprint("value-", i))
		}
		resp, err := testClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	if after := count(); after > before {
		t.Errorf("300 strange requests took the metrics from %d to %d series", before, after)
	}
}
