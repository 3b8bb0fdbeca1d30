package regional_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/accesslog"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/regional"
)

// readAccessLines returns the lines of an access log by the request's id, once there is one for each of ids.
func readAccessLines(t *testing.T, path string, ids ...string) map[string]map[string]any {
	t.Helper()
	var byID map[string]map[string]any
	testkit.EventuallySucceeds(t, testkit.WaitBound, "every request has its access line", func() error {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		byID = map[string]map[string]any{}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		for _, line := range lines {
			var fields map[string]any
			if err := json.Unmarshal([]byte(line), &fields); err != nil {
				return fmt.Errorf("%q: %w", line, err)
			}
			id, _ := fields["request"].(string)
			if byID[id] != nil {
				return fmt.Errorf("two lines for request %s", id)
			}
			byID[id] = fields
		}
		for _, id := range ids {
			if byID[id] == nil {
				return fmt.Errorf("no line for request %s: %s", id, text)
			}
		}
		return nil
	})
	return byID
}

// TestEachRequestHasOneAccessLine sends one request of each kind of ending and compares the lines. No line has the prompt, the
// key or the query.
func TestEachRequestHasOneAccessLine(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(t.TempDir(), "access.log")
	g := w.startGateway("fra", func(c *regional.Config) {
		c.AccessLog = accesslog.Config{Path: path, Format: accesslog.FormatJSON, Sample: 1}
	})
	w.startLocal(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set(forward.HeaderRoute, "fra/fra-a/w7")
		switch r.Header.Get("X-Case") {
		case "broken":
			writeEvents(rw, tokenEvent)
			panic(http.ErrAbortHandler)
		case "client-error":
			http.Error(rw, `{"error":{"message":"too long"}}`, http.StatusBadRequest)
		default:
			writeEvents(rw, tokenEvent, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}`, "[DONE]")
		}
	}, roomyModel("small"))
	w.waitUntilServed(g, "small")
	call := func(id, key, path, kind, body string) {
		resp, err := w.sendCall(t.Context(), g, clientCall{key: key, path: path, body: body, header: http.Header{"X-Request-Id": {id}, "X-Case": {kind}}})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body) // one of them breaks off
		_ = resp.Body.Close()
	}
	call("served", "key-acme", "", "", askBody)
	call("broken", "key-acme", "", "broken", strings.Replace(askBody, `{`, `{"stream":true,"tools":[{}],`, 1))
	call("client-error", "key-acme", "", "client-error", askBody)
	call("wrong-key", "key-of-no-tenant", "", "", askBody)
	call("unknown-path", "key-acme", "/v1/nothing?token=in-the-query", "", askBody)
	lines := readAccessLines(t, path, "served", "broken", "client-error", "wrong-key", "unknown-path")
	for id, want := range map[string]map[string]any{
		"served": {
			"status": 200.0, "tenant": "acme", "model": "small", "route": "fra/fra-a/w7", "prompt_tokens": 9.0, "cached_tokens": 4.0,
			"completion_tokens": 2.0, "path": "/v1/chat/completions", "method": "POST", "broken": nil, "code": nil,
		},
		"broken":       {"status": 200.0, "broken": true, "route": "fra/fra-a/w7"},
		"client-error": {"status": 400.0, "code": nil},
		"wrong-key":    {"status": 401.0, "code": "invalid_api_key", "tenant": nil, "route": nil},
		"unknown-path": {"status": 404.0, "code": "not_found", "path": "/v1/nothing"},
	} {
		for key, value := range want {
			if got := lines[id][key]; got != value {
				t.Errorf("%s: %s is %v, want %v in %v", id, key, got, value, lines[id])
			}
		}
		if lines[id]["client"] == nil || lines[id]["seconds"] == nil {
			t.Errorf("%s: no client or no duration in %v", id, lines[id])
		}
	}
	if ttft, _ := lines["served"]["ttft_seconds"].(float64); ttft <= 0 {
		t.Errorf("no time to first byte in %v", lines["served"])
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"secret of the prompt", "key-acme", "key-of-no-tenant", "in-the-query"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("the access log has %q", secret)
		}
	}
}
