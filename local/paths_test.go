package local_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/paths"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// TestZoneForwardsOnlyInferencePaths: the zone itself answers 404 to each path by which an engine is managed, by POST, by an
// upgrade and by a call, and passes those that its spec adds.
func TestZoneForwardsOnlyInferencePaths(t *testing.T) {
	var attacked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Attack") != "" {
			attacked.Add(1)
		}
		if r.URL.Path == "/v1/models" {
			_, _ = io.WriteString(w, `{"data":[{"id":"m"}]}`)
			return
		}
		_, _ = io.WriteString(w, `{}`)
	}))
	t.Cleanup(s.Close)
	a := startAgent(t, func(c *local.Config) {
		c.Spec = &spec.Spec{Routing: spec.Routing{ExtraPaths: []string{"/custom/{name}/run", "/api/chat"}}}
		c.Workers = append(c.Workers, discover.Worker{Name: "w1", URL: s.URL})
	})
	testkit.Eventually(t, "the worker is ready", func() bool { return countReady(a) == 1 })
	send := func(path, contentType string) (int, string) {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+a.Addr().String()+path, strings.NewReader(`{"model":"m"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Model", "m")
		req.Header.Set("X-Attack", "1")
		req.Header.Set("Content-Type", contentType)
		resp, err := testClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	for _, path := range append(paths.ManagementPaths(), "//v1/chat/completions", "/v1/chat%2Fcompletions", "/v1/Chat/completions", "/custom//run", "/custom/%2e%2e/run", "/generate", "/api/generate") {
		for _, kind := range []string{"application/json", "application/grpc"} {
			if code, text := send(path, kind); code != 404 {
				t.Errorf("POST %s as %s: %d %.100s", path, kind, code, text)
			}
		}
		c, err := net.Dial("tcp", a.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = fmt.Fprintf(c, "GET %s?model=m HTTP/1.1\r\nHost: x\r\nX-Attack: 1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: abc\r\nSec-WebSocket-Version: 13\r\n\r\n", path)
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 404 {
			t.Errorf("an upgrade of %s: %v (%v)", path, resp, err)
		}
		_ = c.Close()
	}
	if n := attacked.Load(); n > 0 {
		t.Errorf("the worker was sent %d of them", n)
	}
	for _, path := range []string{"/custom/x/run", "/api/chat", "/v1/messages/count_tokens", "/v1/rerank", "/score", "/tokenize", "/v1/images/generations", "/v2/models/m/generate", "/v1/audio/speech"} {
		if code, text := send(path, "application/json"); code != 200 {
			t.Errorf("POST %s: %d %.100s", path, code, text)
		}
	}
}

// TestZoneRefusesWrongMethods: a path that passes answers 405 with the methods that it has, and another path 404 with the list of
// package paths.
func TestZoneRefusesWrongMethods(t *testing.T) {
	a := startAgent(t, func(c *local.Config) {
		c.Spec = &spec.Spec{Routing: spec.Routing{ExtraPaths: []string{"/custom/{name}/run"}}}
	})
	for _, tc := range []struct {
		method, path string
		status       int
		allow, text  string
	}{
		{http.MethodGet, "/v1/chat/completions", 405, "POST", "method_not_allowed"},
		{http.MethodPut, "/v1/messages", 405, "POST", "use POST here"},
		{http.MethodDelete, "/v2/models/m/infer", 405, "POST", "method_not_allowed"},
		{http.MethodGet, "/custom/x/run", 405, "POST", "method_not_allowed"},
		{http.MethodPost, "/v1/models", 405, "GET, HEAD", "method_not_allowed"},
		{http.MethodHead, "/v1/models", 200, "", ""},
		{http.MethodGet, "/v1/realtime?model=m", 426, "", "WebSocket"},
		{http.MethodPost, "/v1/realtime?model=m", 405, "GET", "method_not_allowed"},
		{http.MethodGet, "/nothing", 404, "", strings.Join(paths.DefaultPaths(), ", ")},
		{http.MethodGet, "/metrics", 404, "", "not_found"},
		{http.MethodPost, "/nothing", 404, "", "served: /v1/models[/MODEL], /v1/chat/completions"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tc.method, "http://"+a.Addr().String()+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := testClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != tc.status || resp.Header.Get("Allow") != tc.allow || !strings.Contains(string(text), tc.text) {
			t.Errorf("%s %s: %d, Allow %q, %s", tc.method, tc.path, resp.StatusCode, resp.Header.Get("Allow"), text)
		}
		if upgrade := resp.Header.Get("Upgrade"); upgrade == "websocket" != (tc.status == 426) {
			t.Errorf("%s %s: Upgrade %q", tc.method, tc.path, upgrade)
		}
	}
}
