package global

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/spec"
)

// newStaticServer answers redirects from a fixed snapshot.
func newStaticServer(tb testing.TB) *Server {
	tb.Helper()
	v := newStaticSnapshot(tb)
	v.state = &consensus.State{TicketKeys: []consensus.TicketKey{{Secret: []byte(strings.Repeat("k", 32)), At: time.Now().Add(-time.Hour)}}}
	s := &Server{metrics: &nodeMetrics{redirects: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "redirects"}, []string{"outcome"})}}
	s.newParts()
	s.redirects.metrics = s.metrics
	s.snapshot.Store(v)
	return s
}

// addSecondService extends testSpecText with a second service, so that a Host must name one.
func addSecondService(tb testing.TB, s *Server) {
	tb.Helper()
	v := *s.snapshot.Load()
	f, err := newNodePolicy(2, []byte(strings.Replace(testSpecText(), "  - name: chat.api.example.", "  - name: chat.api.example.\n  - name: talk.api.example.", 1)), v.atlas)
	if err != nil {
		tb.Fatal(err)
	}
	next := testSnapshot(f, v.state, v.Children, v.Votes, v.MadeAt, true)
	dryRunSide{next.SteeringSnapshot}.solveForDemand(nil)
	s.snapshot.Store(next)
}

// sendRaw sends a raw request and returns the answer, or nil if it cannot be parsed.
func sendRaw(s *Server, raw string) *http.Response {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
	if err != nil {
		return nil
	}
	r.RemoteAddr = clientAddrs["virginia"] + ":4242"
	w := httptest.NewRecorder()
	s.redirects.serveRedirect(w, r)
	return w.Result()
}

// checkLocation checks a Location: its host must be a child name of a service of the spec.
func checkLocation(v *nodeSnapshot, location string) error {
	u, err := url.Parse(location)
	if err != nil {
		return err
	}
	region, service, _ := strings.Cut(u.Hostname(), ".")
	switch {
	case u.Scheme != "http" || u.User != nil || u.Opaque != "" || u.Fragment != "" || u.Port() != "8080":
		return fmt.Errorf("%q is not of the form that the spec has", location)
	case v.RegionIndex(region) < 0 || v.Spec.FindService(service+".") == nil:
		return fmt.Errorf("%q leads to a host that is not in the spec", location)
	case !strings.HasPrefix(u.EscapedPath(), "/") && u.Path != "":
		return fmt.Errorf("%q has a path that is none", location)
	case len(u.Query()[ticketParam]) != 1 || !strings.Contains(u.RawQuery, ticketParam+"="):
		return fmt.Errorf("%q does not carry one ticket", location)
	case strings.ContainsFunc(location, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return fmt.Errorf("%q holds what a header may not", location)
	}
	return nil
}

// TestNoOpenRedirect tries to be redirected to evil.example: by Host, by an absolute target, by a path, by an encoded
// one.
func TestNoOpenRedirect(t *testing.T) {
	s := newStaticServer(t)
	head := "\r\nAuthorization: Bearer " + testAPIKey + "\r\n\r\n"
	for _, many := range []bool{false, true} {
		if many {
			addSecondService(t, s)
		}
		for _, raw := range []string{
			"GET /v1/models HTTP/1.1\r\nHost: evil.example",
			"GET /v1/models HTTP/1.1\r\nHost: chat.api.example@evil.example",
			"GET /v1/models HTTP/1.1\r\nHost: evil.example#chat.api.example",
			"GET /v1/models HTTP/1.1\r\nHost: chat.api.example\r\nX-Forwarded-Host: evil.example\r\nForwarded: host=evil.example",
			"GET /v1/models HTTP/1.1\r\nHost: chat.api.example:99@evil.example",
			"GET /v1/models HTTP/1.0",
			"GET http://evil.example/v1/models HTTP/1.1\r\nHost: chat.api.example",
			"GET http://chat.api.example@evil.example/v1 HTTP/1.1\r\nHost: chat.api.example",
			"GET //evil.example/v1/models HTTP/1.1\r\nHost: chat.api.example",
			"GET ///evil.example HTTP/1.1\r\nHost: chat.api.example",
			"GET /\\evil.example HTTP/1.1\r\nHost: chat.api.example",
			"GET /%2f%2fevil.example HTTP/1.1\r\nHost: chat.api.example",
			"GET /%5cevil.example/%2e%2e/ HTTP/1.1\r\nHost: chat.api.example",
			"GET /v1/%0d%0aLocation:%20http://evil.example HTTP/1.1\r\nHost: chat.api.example",
			"GET /v1?a=%0d%0aSet-Cookie:x#@evil.example HTTP/1.1\r\nHost: chat.api.example",
			"GET /v1?spw=http://evil.example HTTP/1.1\r\nHost: chat.api.example",
			"POST @evil.example HTTP/1.1\r\nHost: chat.api.example",
			"GET evil.example:80 HTTP/1.1\r\nHost: chat.api.example",
			"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443",
			"OPTIONS * HTTP/1.1\r\nHost: chat.api.example",
		} {
			resp := sendRaw(s, raw+head)
			if resp == nil {
				continue // net/http answers 400 itself
			}
			to := resp.Header.Get("Location")
			switch resp.StatusCode {
			case http.StatusTemporaryRedirect:
				if err := checkLocation(s.snapshot.Load(), to); err != nil {
					t.Errorf("%q: %v", raw, err)
				}
			case http.StatusNotFound, http.StatusMethodNotAllowed:
				if to != "" {
					t.Errorf("%q is refused and led to %q", raw, to)
				}
			default:
				t.Errorf("%q is answered %d", raw, resp.StatusCode)
			}
		}
		if resp := sendRaw(s, "GET /v1 HTTP/1.1\r\nHost: evil.example"+head); many && resp.StatusCode != http.StatusNotFound {
			t.Errorf("a host of no service is answered %d", resp.StatusCode)
		}
	}
}

// FuzzRedirect: for any target, host and query, a redirect leads to a name of the spec.
func FuzzRedirect(f *testing.F) {
	s := newStaticServer(f)
	addSecondService(f, s)
	f.Add("GET", "/v1/chat/completions?a=1&spw=x", testService)
	f.Add("POST", "//evil.example/%2f?x#y", "talk.api.example:8080")
	f.Add("GET", "http://evil.example/v1", "tokyo.chat.api.example")
	f.Add("GET", "/.well-known/spillway/route?model=m1", "chat.api.example")
	f.Add("GET", "/\xff?\x80=\"<>", "CHAT.api.EXAMPLE.")
	f.Fuzz(func(t *testing.T, method, target, host string) {
		resp := sendRaw(s, method+" "+target+" HTTP/1.1\r\nHost: "+host+"\r\nAuthorization: Bearer "+testAPIKey+"\r\n\r\n")
		if resp == nil {
			return
		}
		to := resp.Header.Get("Location")
		if redirected := resp.StatusCode == http.StatusTemporaryRedirect; redirected != (to != "") {
			t.Fatalf("%d with location %q", resp.StatusCode, to)
		} else if !redirected {
			return
		}
		if err := checkLocation(s.snapshot.Load(), to); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRedirectIsASingleHop: a client that returns with one of our tickets is not redirected again.
func TestRedirectIsASingleHop(t *testing.T) {
	s := newStaticServer(t)
	head := " HTTP/1.1\r\nHost: chat.api.example\r\nApi-Key: " + testAPIKey + "\r\n\r\n"
	to, err := url.Parse(sendRaw(s, "POST /v2/models/m1/infer"+head).Header.Get("Location"))
	if err != nil || to.Path != "/v2/models/m1/infer" {
		t.Fatalf("redirected to %s, %v", to, err)
	}
	resp := sendRaw(s, "POST "+to.RequestURI()+head)
	if resp.StatusCode != http.StatusLoopDetected || resp.Header.Get("Location") != "" {
		t.Errorf("a redirect that came back is answered %d, location %q", resp.StatusCode, resp.Header.Get("Location"))
	}
	if resp := sendRaw(s, "DELETE /v1/files/x"+head); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("DELETE is answered %d", resp.StatusCode)
	}
}

// TestRedirectDoesNotWaitForTheBody announces a body and never sends it.
func TestRedirectDoesNotWaitForTheBody(t *testing.T) {
	s := newStaticServer(t)
	srv := httptest.NewServer(forward.GuardHandler(http.HandlerFunc(s.redirects.serveRedirect))) // as the redirect endpoint has it
	defer srv.Close()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: chat.api.example\r\nAuthorization: Bearer %s\r\nContent-Length: 100000\r\n\r\n{", testAPIKey)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != http.StatusTemporaryRedirect {
		t.Fatalf("without its body the call is answered %+v, %v", resp, err)
	}
}

// TestRouteListsRegionsInOrder queries the route as a client that routes itself.
func TestRouteListsRegionsInOrder(t *testing.T) {
	s := newStaticServer(t)
	ask := func(key, query string) (*http.Response, routeAnswer) {
		t.Helper()
		resp := sendRaw(s, "GET "+routePath+query+" HTTP/1.1\r\nHost: chat.api.example\r\nAuthorization: Bearer "+key+"\r\n\r\n")
		var a routeAnswer
		if resp.StatusCode == http.StatusOK {
			if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
				t.Fatal(err)
			}
		}
		return resp, a
	}
	resp, a := ask(testAPIKey, "?model=m1")
	if len(a.Regions) != 3 || a.Regions[0].Region != "virginia" || a.Regions[0].BaseURL != "http://virginia.chat.api.example:8080/v1" {
		t.Fatalf("answer is %d %+v", resp.StatusCode, a)
	}
	if h := resp.Header; h.Get("Cache-Control") != "private, max-age=20" || !strings.Contains(h.Get("Vary"), "Authorization") || a.TTL != 20 {
		t.Errorf("an answer for 20 s has the header %v", h)
	}
	for i, r := range a.Regions {
		if r.RTT == nil || r.Predicted == nil || *r.Predicted < *r.RTT || r.State != "fresh" {
			t.Errorf("region %+v", r)
		} else if i > 0 && *r.Predicted < *a.Regions[i-1].Predicted {
			t.Errorf("%s comes after %s", r.Region, a.Regions[i-1].Region)
		}
	}
	if _, a := ask(testEUKey, ""); len(a.Regions) != 1 || a.Regions[0].Region != "frankfurt" {
		t.Errorf("a tenant that must stay in the EU may go to %+v", a.Regions)
	}
	for query, want := range map[string]int{"?model=m2": 404, "?model=" + strings.Repeat("x", 5000): 404} {
		if resp, _ := ask(testAPIKey, query); resp.StatusCode != want || resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%.20s is answered %d, %v", query, resp.StatusCode, resp.Header)
		}
	}
	if resp, _ := ask("sk-wrong", ""); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a wrong key is answered %d", resp.StatusCode)
	}
	v := *s.snapshot.Load()
	v.Drained.Add(v.RegionIndex("virginia"))
	v.Unavailable = append(v.Unavailable[:0:0], v.Unavailable...)
	v.Unavailable[0].Add(v.RegionIndex("tokyo"))
	s.snapshot.Store(&v)
	if _, a := ask(testAPIKey, ""); len(a.Regions) != 1 || a.Regions[0].Region != "frankfurt" {
		t.Errorf("with a drained and a lost one: %+v", a.Regions)
	}
	v.Drained.Add(v.RegionIndex("frankfurt"))
	if _, a := ask(testAPIKey, ""); len(a.Regions) != 1 {
		t.Errorf("when none is healthy: %+v", a.Regions)
	}
}

// TestRouteForClientWithoutLocation: what is unknown is left out.
func TestRouteForClientWithoutLocation(t *testing.T) {
	v := newStaticSnapshot(t)
	c := &redirectCaller{snapshot: v, service: 0, tenant: &spec.Tenant{}}
	if r := c.describeRegion(0, "m1", geo.AddressInfo{Cell: geo.NoCell}); r.RTT != nil || r.Predicted != nil || r.BaseURL == "" {
		t.Errorf("region is %+v", r)
	}
}

// A service without redirect_proxy proxies clients that request it: by Prefer, or as an SDK that refuses redirects to
// another host. The others are redirected.
func TestSDKsThatRefuseRedirectsAreProxied(t *testing.T) {
	s := &Server{}
	s.snapshot.Store(newStaticSnapshot(t))
	p := &requestProxy{s: s}
	for name, c := range map[string]struct {
		agent, prefer string
		want          bool
	}{
		"openai-go v3":                       {"OpenAI/Go 3.96.0", "", true},
		"a later openai-go":                  {"OpenAI/Go 12.0.0-beta", "", true},
		"openai-go v3 that wants a redirect": {"OpenAI/Go 3.96.0", "redirect", false},
		"openai-go v1":                       {"OpenAI/Go 1.12.0", "", false},
		"openai-python":                      {"OpenAI/Python 2.0.0", "", false},
		"no version":                         {"OpenAI/Go ", "", false},
		"another name":                       {"NotOpenAI/Go 3.96.0", "", false},
		"curl":                               {"curl/8.5", "", false},
		"a client that requests it":          {"curl/8.5", "proxy", true},
	} {
		r := httptest.NewRequest(http.MethodPost, "http://chat.api.example/v1/chat/completions", nil)
		r.Header.Set("User-Agent", c.agent)
		if c.prefer != "" {
			r.Header.Set("Prefer", c.prefer)
		}
		if got := p.shouldProxy(r); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
