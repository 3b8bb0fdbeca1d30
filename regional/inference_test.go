package regional_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional"
)

// The headers of the inference extension: an objective never raises a class, a rewritten model must be allowed for
// the key, and only a trusted tenant may set a fairness ID for its callers or receives a worker's address.
func TestInferenceExtensionHeaders(t *testing.T) {
	w := newWorld(t)
	w.changeDirective(func(d *uplink.Directive) {
		s := strings.Replace(string(d.Spec), "routing:\n", "routing:\n  objectives: [{name: premium, class: interactive}, {name: backfill, class: batch}]\n", 1)
		d.Spec = []byte(strings.Replace(s, "name: urgent", "name: urgent\n    trusted: true", 1))
	})
	g := w.startGateway("fra", nil)
	l := w.startLocal(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set(forward.HeaderServedEndpoint, "10.0.0.1:8000")
		_, _ = io.WriteString(rw, `{"choices":[{"message":{"content":"hi"}}]}`)
	}, roomyModel("small"))
	testkit.Eventually(t, "the zone serves", func() bool {
		resp, _ := w.getAnswer(g, clientCall{key: "key-acme", body: askBody})
		return resp.StatusCode == 200
	})
	<-l.requests
	<-l.bodies
	for name, tc := range map[string]struct {
		key             string
		header          http.Header
		model           string
		status          int
		class, flow, at string
	}{
		"an objective above the key's class": {key: "key-acme", header: http.Header{"X-Gateway-Inference-Objective": {"premium"}}, status: 200, class: "standard"},
		"one below":                          {key: "key-acme", header: http.Header{"X-Llm-D-Inference-Objective": {"backfill"}}, status: 200, class: "batch"},
		"one that is not known":              {key: "key-acme", header: http.Header{"X-Gateway-Inference-Objective": {"other"}}, status: 200, class: "standard"},
		"a fairness id":                      {key: "key-acme", header: http.Header{"X-Gateway-Inference-Fairness-Id": {"berlin"}, "Spillway-Flow": {"berlin"}}, status: 200, class: "standard"},
		"a fairness id of a trusted tenant":  {key: "key-urgent", header: http.Header{"X-Gateway-Inference-Fairness-Id": {"user-7"}}, status: 200, class: "interactive", flow: "user-7", at: "10.0.0.1:8000"},
		"a rewritten model":                  {key: "key-acme", header: http.Header{"X-Gateway-Model-Name-Rewrite": {"best"}}, model: "none", status: 200, class: "standard"},
		"one that the key may not use":       {key: "key-narrow", header: http.Header{"X-Gateway-Model-Name-Rewrite": {"small"}}, model: "large", status: 403},
		"one that is not known at all":       {key: "key-acme", header: http.Header{"X-Llm-D-Model-Name-Rewrite": {"none"}}, status: 404},
	} {
		t.Run(name, func(t *testing.T) {
			body := askBody
			if tc.model != "" {
				body = strings.Replace(askBody, "small", tc.model, 1)
			}
			resp, text := w.getAnswer(g, clientCall{key: tc.key, body: body, header: tc.header})
			if resp.StatusCode != tc.status || resp.Header.Get(forward.HeaderServedEndpoint) != tc.at {
				t.Fatalf("%d %s %v", resp.StatusCode, text, resp.Header)
			}
			if tc.status != 200 {
				return
			}
			r, sent := <-l.requests, string(<-l.bodies)
			if r.Header.Get(forward.HeaderClass) != tc.class || r.Header.Get(forward.HeaderFlow) != tc.flow || !strings.Contains(sent, `"model":"small"`) || r.Header.Get("X-Gateway-Model-Name-Rewrite") != "" {
				t.Errorf("below came %v %s", r.Header, sent)
			}
		})
	}
}

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

// TestGetSingleModel: official clients request one model by its name, which may contain slashes.
func TestGetSingleModel(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	for path, want := range map[string]string{
		"/v1/models/small": `"id":"small"`, "/v1/models/no%2Fsuch": `"code":"model_not_found"`, "/v1/models": `"object":"list"`,
	} {
		req, err := http.NewRequest(http.MethodGet, "http://"+g.HTTPAddr().String()+path, nil)
		requireNoError(t, err)
		req.Header.Set("Authorization", "Bearer key-acme")
		resp, err := newClient(t).Do(req)
		requireNoError(t, err)
		var b strings.Builder
		requireNoError(t, resp.Write(&b))
		_ = resp.Body.Close()
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s: %s", path, b.String())
		}
	}
	if resp, body := w.getAnswer(g, clientCall{method: "HEAD", path: "/v1/models", key: "key-acme"}); resp.StatusCode != 200 || body != "" {
		t.Errorf("HEAD: %d %q", resp.StatusCode, body)
	}
}
