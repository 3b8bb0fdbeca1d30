package regional_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional"
)

// newWorldWithRules starts a world whose spec has rules: an alias with a canary, conditions and a pin, a fallback,
// a limit.
func newWorldWithRules(t *testing.T, models ...*capacity.ModelCapacity) (*testWorld, *regional.Gateway, *fakeLocal) {
	t.Helper()
	w := newWorld(t)
	text := worldSpec()
	for _, r := range [][2]string{
		{"targets: [{model: small, weight: 1}]", `targets:
      - {model: large, weight: 95}
      - {model: small, weight: 5}
      - {model: small, weight: 1, when: {header: {name: X-Cohort, value: beta}}}
      - {model: small, weight: 1, when: {tenants: [europe]}}
      - {model: unserved, weight: 0}`},
		{"  - name: large\n", "  - name: large\n    fallback: small\n    output_limit: 100\n"},
		{"    class: interactive\n", "    class: interactive\n    fallback: true\n"},
		{"    models: [large]\n", "    models: [large]\n    fallback: true\n"},
	} {
		if !strings.Contains(text, r[0]) {
			t.Fatalf("the world's spec has no %q", r[0])
		}
		text = strings.Replace(text, r[0], r[1], 1)
	}
	w.changeDirective(func(d *uplink.Directive) { d.Spec = []byte(text) })
	g := w.startGateway("fra", nil)
	l := w.startLocal(g, "fra", "fra-a", replyCompletion, models...)
	for i := range models {
		w.waitUntilServed(g, models[i].Name)
	}
	return w, g, l
}

const aliasBody = `{"model":"best","messages":[]}`

// nextModel returns the model of the next request that the local instance received.
func (l *fakeLocal) nextModel(t *testing.T) string {
	t.Helper()
	r, body := <-l.requests, string(<-l.bodies)
	model := r.Header.Get("Spillway-Model")
	if !strings.Contains(body, `"model":"`+model+`"`) {
		t.Fatalf("the header says %s and the body %s", model, body)
	}
	return model
}

func TestCanarySplitKeepsSessions(t *testing.T) {
	w, g, l := newWorldWithRules(t, roomyModel("small"), roomyModel("large"))
	at := map[string]string{}
	canary := 0
	const sessions = 300
	for i := range 2 * sessions {
		session := fmt.Sprint(i % sessions)
		if resp, body := w.getAnswer(g, clientCall{key: "key-acme", body: aliasBody, header: http.Header{"X-Session-Id": {session}}}); resp.StatusCode != 200 {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
		model := l.nextModel(t)
		if old := at[session]; old != "" && old != model {
			t.Fatalf("session %s flipped from %s to %s", session, old, model)
		}
		if at[session] == "" && model == "small" {
			canary++
		}
		at[session] = model
	}
	t.Logf("canary at 5 %%: %d of %d sessions, no flip", canary, sessions)
	if canary == 0 || canary > sessions/10 {
		t.Errorf("the canary got %d of %d sessions", canary, sessions)
	}
}

func TestAliasConditionsAndPins(t *testing.T) {
	w, g, l := newWorldWithRules(t, roomyModel("small"), roomyModel("large"))
	for name, tc := range map[string]struct {
		key, model string
		header     http.Header
	}{
		"by header": {"acme", "small", http.Header{"X-Cohort": {"beta"}}},
		"by tenant": {"europe", "small", nil},
		"pinned":    {"acme", "small", http.Header{"X-Spillway-Target": {"small"}}},
		"and back":  {"europe", "large", http.Header{"X-Spillway-Target": {"large"}}},
	} {
		for range 20 {
			resp, body := w.getAnswer(g, clientCall{key: "key-" + tc.key, body: aliasBody, header: tc.header})
			if resp.StatusCode != 200 {
				t.Fatalf("%s: %d %s", name, resp.StatusCode, body)
			}
			if got := l.nextModel(t); got != tc.model {
				t.Fatalf("%s: reached %s, want %s", name, got, tc.model)
			}
		}
	}
	resp, body := w.getAnswer(g, clientCall{key: "key-acme", body: aliasBody, header: http.Header{"X-Spillway-Target": {"huge"}}})
	if resp.StatusCode != 400 || errorCode(body) != openai.CodeInvalidValue || !strings.Contains(body, "large, small, unserved") {
		t.Errorf("a pin to what is no target: %d %s", resp.StatusCode, body)
	}
	if resp, body := w.getAnswer(g, clientCall{key: "key-narrow", body: aliasBody, header: http.Header{"X-Spillway-Target": {"small"}}}); resp.StatusCode != 403 {
		t.Errorf("a pin to a model that the tenant may not use: %d %s", resp.StatusCode, body)
	}
}

func TestOutputLimitIsEnforced(t *testing.T) {
	w, g, l := newWorldWithRules(t, roomyModel("small"), roomyModel("large"))
	resp, body := w.getAnswer(g, clientCall{key: "key-acme", body: `{"model":"large","messages":[],"max_tokens":101}`})
	if resp.StatusCode != 400 || errorCode(body) != openai.CodeInvalidValue || !strings.Contains(body, "at most 100") {
		t.Errorf("over the limit: %d %s", resp.StatusCode, body)
	}
	if resp, body := w.getAnswer(g, clientCall{key: "key-acme", body: `{"model":"large","messages":[],"max_tokens":100}`}); resp.StatusCode != 200 {
		t.Errorf("at the limit: %d %s", resp.StatusCode, body)
	}
	l.nextModel(t)
}

// TestFallbackWhenTheTargetCannotBeMet: a fallback is used for a tenant that allows it, and only while it meets
// the target.
func TestFallbackWhenTheTargetCannotBeMet(t *testing.T) {
	slow := roomyModel("large")
	slow.WorkAhead = [3]int64{4_000_000, 4_000_000, 4_000_000} // 50 s
	w, g, l := newWorldWithRules(t, roomyModel("small"), slow)
	const large = `{"model":"large","messages":[],"max_tokens":5}`
	for name, tc := range map[string]struct {
		key, path, served, fallback string
		header                      http.Header
		body                        string
	}{
		"allowed":           {key: "urgent", served: "small", fallback: "large -> small"},
		"by alias":          {key: "urgent", body: aliasBody, served: "small", fallback: "best -> small", header: http.Header{"X-Session-Id": {"of the greater part"}}},
		"not allowed":       {key: "acme", served: "large"},
		"may not use it":    {key: "narrow", served: "large"},
		"pinned":            {key: "urgent", body: aliasBody, served: "large", header: http.Header{"X-Spillway-Target": {"large"}}},
		"embeddings":        {key: "urgent", path: "/v1/embeddings", body: `{"model":"large","input":"x"}`, served: "large"},
		"patience of batch": {key: "urgent", served: "small", fallback: "large -> small", header: http.Header{"X-Spillway-Class": {"batch"}}},
	} {
		if tc.body == "" {
			tc.body = large
		}
		resp, body := w.getAnswer(g, clientCall{key: "key-" + tc.key, path: tc.path, body: tc.body, header: tc.header})
		if resp.StatusCode != 200 || resp.Header.Get("X-Spillway-Fallback") != tc.fallback {
			t.Fatalf("%s: %d %s, fallback %q", name, resp.StatusCode, body, resp.Header.Get("X-Spillway-Fallback"))
		}
		if got := l.nextModel(t); got != tc.served {
			t.Fatalf("%s: reached %s, want %s", name, got, tc.served)
		}
	}
	l.mu.Lock() // now both are slow: the fallback does not help
	busy := roomyModel("small")
	busy.WorkAhead = slow.WorkAhead
	l.summary.Models = []*capacity.ModelCapacity{busy, slow}
	l.mu.Unlock()
	l.child.SummarizeNow()
	testkit.Eventually(t, "the asked model is kept to", func() bool {
		resp, _ := w.getAnswer(g, clientCall{key: "key-urgent", body: large})
		l.nextModel(t)
		return resp.Header.Get("X-Spillway-Fallback") == ""
	})
	l.mu.Lock() // no zone serves the requested model any more
	l.summary.Models = []*capacity.ModelCapacity{roomyModel("small")}
	l.mu.Unlock()
	l.child.SummarizeNow()
	testkit.Eventually(t, "without any capacity the fallback answers", func() bool {
		resp, _ := w.getAnswer(g, clientCall{key: "key-urgent", body: large})
		return resp.StatusCode == 200 && l.nextModel(t) == "small" && resp.Header.Get("X-Spillway-Fallback") == "large -> small"
	})
	if resp, _ := w.getAnswer(g, clientCall{key: "key-acme", body: large}); resp.StatusCode != 503 {
		t.Errorf("a tenant without fallbacks is answered %d", resp.StatusCode)
	}
}

// TestExplainNamesTheRule: the explanation names the rule that chose an alias's target, and the fallback that
// would serve the request.
func TestExplainNamesTheRule(t *testing.T) {
	slow := roomyModel("large")
	slow.WorkAhead = [3]int64{4_000_000, 4_000_000, 4_000_000}
	w, g, _ := newWorldWithRules(t, roomyModel("small"), slow)
	gw := capacity.Path{Region: "fra", Instance: "fra-gw"}
	testkit.Eventually(t, "the gateway is heard", func() bool { return w.lastSummary(gw) != nil })
	w.waitUntilServed(g, "large")
	for ask, want := range map[string]string{
		`{"model":"best","tenant":"europe"}`:                     "best is an alias: target small, for tenant is europe; weight 1 of 1, by chance",
		`{"model":"best","tenant":"acme","target":"large"}`:      "pinned to its target large",
		`{"model":"best","tenant":"acme","session":"s"}`:         "kept there by its session (rule: weight)",
		`{"model":"best","headers":{"X-Cohort":["beta"]}}`:       `for header X-Cohort is \"beta\"`,
		`{"model":"large","tenant":"urgent","max_tokens":10}`:    "large cannot meet the target of 1s; its fallback small can",
		`{"model":"best","tenant":"acme","target":"other"}`:      "its targets: large, small, unserved",
		`{"model":"large","tenant":"acme","prompt_tokens":1000}`: `"chosen"`,
	} {
		b, err := w.global.QueryChild(stopContext(t), gw, "explain", []byte(ask))
		text := string(b)
		if err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, want) || strings.Contains(text, "would answer") != strings.Contains(want, "fallback") {
			t.Errorf("%s: %s, want %q", ask, text, want)
		}
	}
}

// TestKServeInferenceIsForwarded: KServe's protocol names the model in the path, and the gateway does not parse
// the body.
func TestKServeInferenceIsForwarded(t *testing.T) {
	w := newWorld(t)
	text := strings.Replace(worldSpec(), "  - name: large\n", "  - name: org/resnet-50\n  - name: large\n", 1)
	w.changeDirective(func(d *uplink.Directive) {
		d.Spec = []byte(strings.Replace(text, "targets: [{model: small, weight: 1}]", "targets: [{model: org/resnet-50, weight: 1}]", 1))
	})
	g := w.startGateway("fra", nil)
	l := w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("org/resnet-50"))
	w.waitUntilServed(g, "org/resnet-50")
	for path, want := range map[string]string{
		"/v2/models/org%2Fresnet-50/infer":                "/v2/models/org%2Fresnet-50/infer",
		"/v2/models/best/infer":                           "/v2/models/org%2Fresnet-50/infer",
		"/v2/models/best/versions/3/infer":                "/v2/models/org%2Fresnet-50/versions/3/infer",
		"/v2/models/best/infer?trace=1":                   "/v2/models/org%2Fresnet-50/infer?trace=1",
		"/v2/models/org%2Fresnet-50/versions/1.0/infer?a": "/v2/models/org%2Fresnet-50/versions/1.0/infer?a",
	} {
		tensors := "\x00\x01binary, not JSON\xff"
		resp, body := w.getAnswer(g, clientCall{key: "key-acme", path: path, body: tensors, header: http.Header{"Inference-Header-Content-Length": {"7"}}})
		if resp.StatusCode != 200 {
			t.Fatalf("%s: %d %s", path, resp.StatusCode, body)
		}
		r, sent := <-l.requests, string(<-l.bodies)
		if r.URL.RequestURI() != want || sent != tensors || r.Header.Get("Spillway-Model") != "org/resnet-50" || r.Header.Get("Inference-Header-Content-Length") != "7" {
			t.Errorf("%s arrived as %s with %q and %v", path, r.URL.RequestURI(), sent, r.Header)
		}
	}
	for _, tc := range []struct {
		call   clientCall
		status int
		code   string
	}{
		{clientCall{path: "/v2/models/best/infer", body: "{}"}, 401, openai.CodeInvalidAPIKey},
		{clientCall{key: "key-acme", path: "/v2/models/nobody/infer", body: "{}"}, 404, openai.CodeModelNotFound},
		{clientCall{key: "key-narrow", path: "/v2/models/best/infer", body: "{}"}, 403, openai.CodeModelNotAllowed},
		{clientCall{key: "key-acme", path: "/v2/models/best/ready", body: "{}"}, 404, openai.CodeNotFound},
		{clientCall{key: "key-acme", path: "/v2/models//infer", body: "{}"}, 404, openai.CodeNotFound},
		{clientCall{method: "GET", key: "key-acme", path: "/v2/models/best/infer"}, 405, openai.CodeMethodNotAllowed},
	} {
		if resp, body := w.getAnswer(g, tc.call); resp.StatusCode != tc.status || errorCode(body) != tc.code {
			t.Errorf("%s: %d %s, want %d %s", tc.call.path, resp.StatusCode, body, tc.status, tc.code)
		}
	}
}

// TestKServeInferenceSpillsToPeer: the gateway of the peer region also reads the model from the path.
func TestKServeInferenceSpillsToPeer(t *testing.T) {
	r := newPeerRegions(t, nil)
	l := r.startLocal(r.iad, "iad", "iad-a", replyCompletion, roomyModel("small"))
	r.waitForWorkerTotal("iad", 2)
	r.testWorld.waitUntilServed(r.iad, "small")
	testkit.Eventually(t, "an inference spills", func() bool {
		resp, _ := r.getAnswer(r.fra, clientCall{key: "key-acme", path: "/v2/models/best/infer", body: "\xffnot JSON"})
		return resp.StatusCode == 200
	})
	if got := <-l.requests; got.URL.Path != "/v2/models/small/infer" || got.Header.Get("Spillway-Hop") != "1" {
		t.Errorf("arrived as %s with %v", got.URL.Path, got.Header)
	}
}
