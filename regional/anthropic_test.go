package regional_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/regional"
)

// Anthropic's clients send their key as x-api-key and expect errors in Anthropic's format.
func TestAnthropicMessages(t *testing.T) {
	w := newWorld(t)
	reg := prometheus.NewRegistry()
	g := w.startGateway("fra", func(c *regional.Config) { c.Registry = reg })
	l := w.startLocal(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Break") == "" {
			_, _ = io.WriteString(rw, `{"type":"message","content":[{"type":"text","text":"hi"}],"usage":{"input_tokens":9,"output_tokens":2}}`)
			return
		}
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(rw, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":9}}}\n\n")
		_ = http.NewResponseController(rw).Flush()
		panic(http.ErrAbortHandler)
	}, roomyModel("small"))
	w.waitUntilServed(g, "small")
	body := `{"model":"best","system":"be brief","max_tokens":16,"messages":[{"role":"user","content":"hello"}]}`
	resp, text := w.getAnswer(g, clientCall{path: "/v1/messages", body: body, header: http.Header{"X-Api-Key": {"key-acme"}, "Anthropic-Version": {"2023-06-01"}}})
	if resp.StatusCode != 200 || !strings.Contains(text, `"type":"message"`) || resp.Header.Get("X-Spillway-Route") == "" || resp.Header.Get("Server-Timing") == "" {
		t.Fatalf("%d %s %v", resp.StatusCode, text, resp.Header)
	}
	r, sent := <-l.requests, string(<-l.bodies)
	if r.URL.Path != "/v1/messages" || r.Header.Get("Anthropic-Version") == "" || r.Header.Get("X-Api-Key") != "" || !strings.Contains(sent, `"model":"small"`) {
		t.Errorf("below came %s %v %s", r.URL.Path, r.Header, sent)
	}
	for name, tc := range map[string]struct {
		key, body string
		status    int
		kind      string
	}{
		"nobody":          {"", body, 401, "authentication_error"},
		"no model":        {"key-acme", `{"messages":[]}`, 400, "invalid_request_error"},
		"unknown model":   {"key-acme", strings.Replace(body, "best", "none", 1), 404, "not_found_error"},
		"no room":         {"key-acme", strings.Replace(body, "best", "unserved", 1), 503, "overloaded_error"},
		"too large":       {"key-acme", strings.Repeat("x", 200_000), 413, "request_too_large"},
		"another's model": {"key-narrow", body, 403, "permission_error"},
	} {
		resp, text := w.getAnswer(g, clientCall{path: "/v1/messages", body: tc.body, header: http.Header{"X-Api-Key": {tc.key}}})
		var e struct {
			Type  string
			Error struct{ Type, Message string }
		}
		if err := json.Unmarshal([]byte(text), &e); err != nil || resp.StatusCode != tc.status || e.Type != "error" || e.Error.Type != tc.kind || e.Error.Message == "" {
			t.Errorf("%s: %d %s", name, resp.StatusCode, text)
		}
	}
	if _, text := w.getAnswer(g, clientCall{path: "/v1/messages", body: strings.Replace(body, `"model"`, `"stream":true,"model"`, 1), header: http.Header{"X-Api-Key": {"key-acme"}, "X-Break": {"1"}}}); !strings.Contains(text, "event: error\ndata: {\"type\":\"error\"") {
		t.Errorf("a stream that breaks off ends with %q", text)
	}
}
