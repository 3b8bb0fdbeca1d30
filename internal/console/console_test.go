package console_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/console"
)

const testToken = "sk-operator"

// testNode is a console with one feed that counts its readings.
type testNode struct {
	console *console.Console
	server  *httptest.Server
	reads   atomic.Int64
}

func newTestNode(t *testing.T) *testNode {
	t.Helper()
	n := &testNode{}
	check := func(token string) (console.Caller, bool) {
		return console.Caller{Name: "token:olga", Role: "operator"}, token == testToken
	}
	n.console = console.New(console.Config{
		Node: "g1", Tier: "global", Actions: []string{"drain"}, CheckToken: check,
		IdentifyCaller: func(r *http.Request) (console.Caller, bool) {
			return check(console.TokenOf(r, console.SecureCookieName))
		},
		Feeds: []console.Feed{
			{Name: "status", Interval: 10 * time.Millisecond, Read: func(context.Context) (any, error) {
				return map[string]int64{"reads": n.reads.Add(1)}, nil
			}},
			{Name: "broken", Interval: 10 * time.Millisecond, Read: func(context.Context) (any, error) { return nil, fmt.Errorf("no leader") }},
		},
	})
	mux := http.NewServeMux()
	n.console.AddRoutes(mux)
	n.server = httptest.NewServer(mux)
	t.Cleanup(func() { n.console.Close(); n.server.Close() })
	return n
}

// send makes a request with the headers, and returns the answer.
func (n *testNode) send(t *testing.T, method, path, body string, headers map[string]string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, n.server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range headers {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func cookieHeader() map[string]string {
	return map[string]string{"Cookie": console.SecureCookieName + "=" + base64.RawURLEncoding.EncodeToString([]byte(testToken))}
}

func TestPagesHaveStrictHeaders(t *testing.T) {
	n := newTestNode(t)
	for path, contentType := range map[string]string{
		"/console/": "text/html; charset=utf-8", "/console/app.js": "text/javascript; charset=utf-8", "/console/views/fleet.js": "text/javascript; charset=utf-8", "/console/app.css": "text/css; charset=utf-8",
	} {
		resp := n.send(t, "GET", path, "", nil)
		h := resp.Header
		if resp.StatusCode != 200 || h.Get("Content-Type") != contentType {
			t.Errorf("%s: %d %q, want 200 %q", path, resp.StatusCode, h.Get("Content-Type"), contentType)
		}
		csp := h.Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "script-src 'self';") || strings.Contains(csp, "unsafe") || !strings.Contains(csp, "frame-ancestors 'none'") {
			t.Errorf("%s: the policy is %q", path, csp)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-cache" || h.Get("ETag") == "" {
			t.Errorf("%s: headers are %v", path, h)
		}
		if again := n.send(t, "GET", path, "", map[string]string{"If-None-Match": h.Get("ETag")}); again.StatusCode != http.StatusNotModified {
			t.Errorf("%s with its ETag: %d, want 304", path, again.StatusCode)
		}
	}
	if resp := n.send(t, "GET", "/", "", nil); resp.StatusCode != http.StatusFound || resp.Header.Get("Location") != console.Path {
		t.Errorf("/ is %d to %q", resp.StatusCode, resp.Header.Get("Location"))
	}
	if resp := n.send(t, "GET", "/console/../go.mod", "", nil); resp.StatusCode == 200 {
		t.Error("a path outside the console is served")
	}
}

// TestPagesHaveNoInlineCode holds the files to the policy: a browser would refuse what it forbids.
func TestPagesHaveNoInlineCode(t *testing.T) {
	n := newTestNode(t)
	page, _ := io.ReadAll(n.send(t, "GET", "/console/", "", nil).Body)
	for _, bad := range []string{"<style", " style=", " onclick=", "http://", "https://", "<script>"} {
		if strings.Contains(string(page), bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
}

func TestLoginSetsProtectedCookie(t *testing.T) {
	n := newTestNode(t)
	post := map[string]string{"Content-Type": "application/json", console.WriteHeader: "1"}
	if resp := n.send(t, "POST", "/console/login", `{"token":"wrong"}`, post); resp.StatusCode != 401 || resp.Header.Get("Set-Cookie") != "" {
		t.Errorf("a wrong token: %d, cookie %q", resp.StatusCode, resp.Header.Get("Set-Cookie"))
	}
	if resp := n.send(t, "POST", "/console/login", `{"token":"`+testToken+`"}`, map[string]string{"Content-Type": "application/json"}); resp.StatusCode != 403 || resp.Header.Get("Set-Cookie") != "" {
		t.Errorf("a login without the page's header: %d", resp.StatusCode)
	}
	if resp := n.send(t, "POST", "/console/login", strings.Repeat("x", 1<<20), post); resp.StatusCode != 400 {
		t.Errorf("a huge login: %d", resp.StatusCode)
	}
	resp := n.send(t, "POST", "/console/login", `{"token":"`+testToken+`"}`, post)
	if len(resp.Cookies()) != 1 {
		t.Fatalf("the login returned %d and the cookies %v", resp.StatusCode, resp.Cookies())
	}
	c := resp.Cookies()[0]
	if c.Name != "__Host-spillway" || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || c.MaxAge <= 0 {
		t.Errorf("the cookie is %v", c)
	}
	session := n.send(t, "GET", "/console/session", "", map[string]string{"Cookie": c.Name + "=" + c.Value})
	var out struct {
		Name, Role, Node string
		Feeds, Actions   []string
	}
	if err := json.NewDecoder(session.Body).Decode(&out); err != nil || out.Name != "token:olga" || out.Role != "operator" || out.Node != "g1" || len(out.Feeds) != 2 || len(out.Actions) != 1 {
		t.Errorf("the session is %+v (%v)", out, err)
	}
	if session.Header.Get("Cache-Control") != "no-store" {
		t.Error("the session may be cached")
	}
	out2 := n.send(t, "POST", "/console/logout", "{}", post)
	if len(out2.Cookies()) != 1 || out2.Cookies()[0].MaxAge >= 0 {
		t.Errorf("the logout returned %v", out2.Cookies())
	}
}

func TestCookieAloneChangesNothing(t *testing.T) {
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		r := httptest.NewRequest(method, "/v1/drains", nil)
		r.Header.Set("Cookie", cookieHeader()["Cookie"])
		if got := console.TokenOf(r, console.SecureCookieName); got != "" {
			t.Errorf("%s without the page's header has the token %q: another site could send it", method, got)
		}
		r.Header.Set(console.WriteHeader, "1")
		if got := console.TokenOf(r, console.SecureCookieName); got != testToken {
			t.Errorf("%s of the page has the token %q", method, got)
		}
	}
}

func TestStreamNeedsLogin(t *testing.T) {
	n := newTestNode(t)
	for _, path := range []string{"/console/stream?feeds=status", "/console/session"} {
		if resp := n.send(t, "GET", path, "", nil); resp.StatusCode != 401 {
			t.Errorf("%s without a login: %d, want 401", path, resp.StatusCode)
		}
	}
	if n.reads.Load() != 0 {
		t.Error("a refused viewer made the feed be read")
	}
}

// openStream opens a stream and returns a function that reads the next event.
func (n *testNode) openStream(t *testing.T, feeds string) (next func() (event, data string), stop context.CancelFunc) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", n.server.URL+"/console/stream?feeds="+feeds, nil)
	req.Header.Set("Cookie", cookieHeader()["Cookie"])
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("opening a stream: %v %v", resp, err)
	}
	if resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the stream's headers are %v", resp.Header)
	}
	t.Cleanup(func() { stop(); resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	return func() (event, data string) {
		for lines.Scan() {
			switch line := lines.Text(); {
			case strings.HasPrefix(line, "event: "):
				event = line[7:]
			case strings.HasPrefix(line, "data: "):
				data = line[6:]
			case line == "" && event != "":
				return event, data
			}
		}
		return "", ""
	}, stop
}

func TestStreamSendsFiguresAndFaults(t *testing.T) {
	n := newTestNode(t)
	next, _ := n.openStream(t, "status,broken,unknown,status")
	seen := map[string]string{}
	for range 20 {
		event, data := next()
		seen[event] = data
	}
	if !strings.Contains(seen["status"], `{"reads":`) || !strings.Contains(seen["fault"], "no leader") || seen["tick"] == "" {
		t.Errorf("the events are %v", seen)
	}
	if _, unknown := seen["unknown"]; unknown {
		t.Error("an unknown feed is sent")
	}
}

func TestViewersShareOneReader(t *testing.T) {
	n := newTestNode(t)
	var nexts []func() (string, string)
	var stops []context.CancelFunc
	for range 5 {
		next, stop := n.openStream(t, "status")
		nexts, stops = append(nexts, next), append(stops, stop)
	}
	values := map[string]int{}
	for _, next := range nexts {
		for range 10 {
			if event, data := next(); event == "status" {
				values[data]++
			}
		}
	}
	shared := false
	for _, times := range values {
		shared = shared || times > 1
	}
	if !shared {
		t.Errorf("no reading reached two viewers: each viewer reads on its own: %v", values)
	}
	for _, stop := range stops {
		stop()
	}
	waitFor(t, "the end of the readings", func() bool {
		before := n.reads.Load()
		time.Sleep(60 * time.Millisecond) // six intervals of the feed
		return n.reads.Load() == before
	})
}

func TestStreamsAreBounded(t *testing.T) {
	n := newTestNode(t)
	var stop context.CancelFunc
	for range console.MaxViewers {
		_, stop = n.openStream(t, "broken")
	}
	refused := n.send(t, "GET", "/console/stream?feeds=status", "", cookieHeader())
	if refused.StatusCode != 503 || refused.Header.Get("Retry-After") == "" {
		t.Errorf("one viewer too many: %d, want 503 with Retry-After", refused.StatusCode)
	}
	stop()
	waitFor(t, "the place of a viewer that left", func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "GET", n.server.URL+"/console/stream?feeds=broken", nil)
		req.Header.Set("Cookie", cookieHeader()["Cookie"])
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode == 200
	})
}

func TestCloseEndsStreams(t *testing.T) {
	n := newTestNode(t)
	next, _ := n.openStream(t, "status")
	next()
	n.console.Close()
	for event, _ := next(); event != ""; event, _ = next() {
	}
	if resp := n.send(t, "GET", "/console/stream?feeds=status", "", cookieHeader()); resp.StatusCode != 503 {
		t.Errorf("a stream after Close: %d, want 503", resp.StatusCode)
	}
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !done(); {
		if time.Now().After(end) {
			t.Fatalf("%s did not come within 10 s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestLargeAnswersAreReadLessOften(t *testing.T) {
	for size, want := range map[int]time.Duration{0: time.Second, 100_000: time.Second, 3_000_000: 10 * time.Second} {
		if got := console.ChooseInterval(time.Second, size); got != want {
			t.Errorf("%d bytes: every %v, want %v", size, got, want)
		}
	}
}
