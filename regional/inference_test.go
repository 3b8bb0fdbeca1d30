package regional_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/uplink"
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
