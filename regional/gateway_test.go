package regional_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/geo/geofiles"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/paths"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/ticket"
	"github.com/spillway-lb/spillway/internal/timed"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional"
)

func TestRequestReachesLocalWithHopHeaders(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	l := w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	resp, body := w.getAnswer(g, clientCall{key: "key-acme", body: strings.Replace(askBody, "small", "best", 1), header: http.Header{
		"Spillway-Tenant": {"root"}, "Spillway-Hop": {"1"}, "X-Client-Request-Id": {"mine-1"}, "Connection": {"X-Gone"}, "X-Gone": {"1"}, "Traceparent": {"00-a"},
	}})
	if resp.StatusCode != 200 || !strings.Contains(body, "hi") || resp.Header.Get("X-Request-Id") != "mine-1" ||
		resp.Header.Get("X-Spillway-Route") != "from/below/w1" || !strings.Contains(resp.Header.Get("Server-Timing"), `zone;desc="fra/fra-a/l1"`) {
		t.Fatalf("answer is %d %q %v", resp.StatusCode, body, resp.Header)
	}
	r, sent := <-l.requests, string(<-l.bodies)
	hop, err := forward.ParseHop(r.Header)
	if err != nil || hop.Tenant != "acme" || hop.Model != "small" || hop.Hops != 0 || hop.Ticket.Parent != "fra-gw" || hop.Ticket.Number == 0 ||
		hop.RequestID != "mine-1" || hop.MaxTokens != 16 || hop.PromptTokens == 0 || hop.RetriesLeft != 1 {
		t.Fatalf("hop is %+v (%v)", hop, err)
	}
	if r.Header.Get("Authorization") != "" || r.Header.Get("X-Gone") != "" || r.Header.Get("Traceparent") != "00-a" || r.ContentLength != int64(len(sent)) {
		t.Errorf("headers below are %v", r.Header)
	}
	if !strings.Contains(sent, `"model":"small"`) {
		t.Errorf("the alias reached the engine: %s", sent)
	}
}

func TestRefusedRequestsGetTheirErrorCodes(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	l := w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"), roomyModel("large"))
	w.waitUntilServed(g, "small")
	long := strings.Repeat("word ", 12_000)
	for _, tc := range []struct {
		name   string
		call   clientCall
		status int
		code   string
	}{
		{"no key", clientCall{body: askBody}, 401, openai.CodeInvalidAPIKey},
		{"bad key", clientCall{key: "key-nobody", body: askBody}, 401, openai.CodeInvalidAPIKey},
		{"bad ticket", clientCall{path: "/v1/chat/completions?spw=forged", body: askBody}, 401, openai.CodeInvalidAPIKey},
		{"residency", clientCall{key: "key-america", body: askBody}, 403, openai.CodeResidency},
		{"model not allowed", clientCall{key: "key-narrow", body: askBody}, 403, openai.CodeModelNotAllowed},
		{"unknown model", clientCall{key: "key-acme", body: strings.Replace(askBody, "small", "gpt", 1)}, 404, openai.CodeModelNotFound},
		{"declared but served nowhere", clientCall{key: "key-acme", body: strings.Replace(askBody, "small", "unserved", 1)}, 503, openai.CodeNoCapacity},
		{"no model", clientCall{key: "key-acme", body: `{}`}, 400, openai.CodeModelRequired},
		{"not JSON", clientCall{key: "key-acme", body: `model=small`}, 400, openai.CodeInvalidJSON},
		{"cut JSON", clientCall{key: "key-acme", body: askBody[:40]}, 400, openai.CodeInvalidJSON},
		{"too large", clientCall{key: "key-acme", body: `{"model":"small","prompt":"` + strings.Repeat("x", 100_001) + `"}`}, 413, openai.CodeBodyTooLarge},
		{"context", clientCall{key: "key-acme", body: strings.Replace(askBody, "secret", long, 1)}, 400, openai.CodeContextTooLong},
		{"unknown path", clientCall{key: "key-acme", path: "/v1/nothing", body: askBody}, 404, openai.CodeNotFound},
		{"wrong method", clientCall{method: "GET", key: "key-acme"}, 405, openai.CodeMethodNotAllowed},
		{"POST of the models", clientCall{key: "key-acme", path: "/v1/models", body: askBody}, 405, openai.CodeMethodNotAllowed},
		{"realtime without an upgrade", clientCall{method: "GET", key: "key-acme", path: "/v1/realtime?model=small"}, 426, openai.CodeMethodNotAllowed},
		{"POST of realtime", clientCall{key: "key-acme", path: "/v1/realtime?model=small", body: askBody}, 405, openai.CodeMethodNotAllowed},
		{"bad class", clientCall{key: "key-acme", body: askBody, header: http.Header{"X-Spillway-Class": {"now"}}}, 400, openai.CodeInvalidValue},
		{"bad timeout", clientCall{key: "key-acme", body: askBody, header: http.Header{"X-Request-Timeout-Ms": {"5s"}}}, 400, openai.CodeInvalidValue},
		{"bad objective", clientCall{key: "key-acme", body: askBody, header: http.Header{"X-Slo-Ttft-Ms": {"0"}}}, 400, openai.CodeInvalidValue},
		{"bad deadline", clientCall{key: "key-acme", body: askBody, header: http.Header{"X-Spillway-Deadline-Ms": {"soon"}}}, 400, openai.CodeInvalidValue},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp, body := w.getAnswer(g, tc.call)
			if resp.StatusCode != tc.status || errorCode(body) != tc.code || resp.Header.Get("Content-Type") != "application/json" || resp.Header.Get("X-Request-Id") == "" {
				t.Fatalf("got %d %s, want %d with code %s", resp.StatusCode, body, tc.status, tc.code)
			}
			allow := map[string]string{"wrong method": "POST", "POST of the models": "GET, HEAD", "POST of realtime": "GET"}[tc.name]
			if got := resp.Header.Get("Allow"); got != allow {
				t.Errorf("Allow is %q with %d, want %q", got, tc.status, allow)
			}
			if upgrade := resp.Header.Get("Upgrade"); upgrade == "websocket" != (tc.status == 426) {
				t.Errorf("Upgrade is %q with %d", upgrade, tc.status)
			}
			if tc.code == openai.CodeNotFound && !strings.Contains(body, paths.NotFoundError("x").Message[len(`no such path: "x" `):]) {
				t.Errorf("the paths are not listed: %s", body)
			}
			retryable := tc.status == 503
			if (resp.Header.Get("Retry-After") != "") != retryable || (resp.Header.Get("X-Should-Retry") == "false") == retryable {
				t.Errorf("retry headers are %v", resp.Header)
			}
			if tc.status == 404 && tc.code == openai.CodeModelNotFound && !strings.Contains(body, "best, large, small") {
				t.Errorf("what is served is not listed: %s", body)
			}
		})
	}
	if len(l.requests) != 0 {
		t.Errorf("%d refused requests reached the local", len(l.requests))
	}
	if logs := w.logs.String(); strings.Contains(logs, "secret") || strings.Contains(logs, "key-") {
		t.Errorf("a prompt or a key is in the logs:\n%s", logs)
	}
}

func TestTenantLimitsAndRateLimitHeaders(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	resp, _ := w.getAnswer(g, clientCall{key: "key-limited", body: askBody})
	if resp.StatusCode != 200 || resp.Header.Get("X-Ratelimit-Remaining-Requests") != "0" || resp.Header.Get("X-Ratelimit-Limit-Tokens") != "100000" {
		t.Fatalf("first is %d %v", resp.StatusCode, resp.Header)
	}
	resp, body := w.getAnswer(g, clientCall{key: "key-limited", body: askBody})
	if resp.StatusCode != 429 || errorCode(body) != openai.CodeRequests || resp.Header.Get("Retry-After") == "" || resp.Header.Get("X-Ratelimit-Reset-Requests") == "" {
		t.Fatalf("second is %d %s %v", resp.StatusCode, body, resp.Header)
	}
}

// TestProxiedTicketIdentifiesClient: demand counts for the client in the ticket of a global node that proxies a
// request, regardless of the headers.
func TestProxiedTicketIdentifiesClient(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	atlas, err := geofiles.OpenAtlas(geo.Config{Demo: true})
	requireNoError(t, err)
	cell := func(addr string) string { return geo.CellName(atlas.Locate(netip.MustParseAddr(addr)).Cell) }
	tk := ticket.MintTicket(ticketKey(), ticket.RedirectTicket{
		Tenant: "acme", Service: "chat.api.example.", Region: "fra", Expires: time.Now().Add(ticket.Lifetime), Client: "203.0.113.7",
	})
	resp, body := w.getAnswer(g, clientCall{
		path: "/v1/chat/completions?spw=" + tk, body: askBody, host: "fra.chat.api.example:8080", header: http.Header{"X-Forwarded-For": {"198.51.100.7"}},
	})
	if resp.StatusCode != 200 {
		t.Fatalf("got %d %s", resp.StatusCode, body)
	}
	testkit.Eventually(t, "the demand is reported", func() bool {
		s := w.lastSummary(capacity.Path{Region: "fra", Instance: "fra-gw"})
		return s != nil && slices.ContainsFunc(s.Demand, func(d capacity.CellDemand) bool { return d.Cell == cell("203.0.113.7") })
	})
	if s := w.lastSummary(capacity.Path{Region: "fra", Instance: "fra-gw"}); len(s.Demand) != 1 {
		t.Errorf("demand is %+v", s.Demand)
	}
}

func TestTicketIsAcceptedAndStripped(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	l := w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	nonce := uint64(1000) // each ticket is new, so each refusal has its own cause
	mint := func(region string, left time.Duration) string {
		nonce++
		return ticket.MintTicket(ticketKey(), ticket.RedirectTicket{Tenant: "acme", Service: "chat.api.example.", Region: region, Expires: time.Now().Add(left), Nonce: nonce})
	}
	resp, body := w.getAnswer(g, clientCall{path: "/v1/chat/completions?a=1&spw=" + mint("fra", time.Minute), body: askBody, host: "fra.chat.api.example:8080"})
	if resp.StatusCode != 200 {
		t.Fatalf("a good ticket got %d %s", resp.StatusCode, body)
	}
	if r := <-l.requests; r.URL.RequestURI() != "/v1/chat/completions?a=1" || r.Header.Get(forward.HeaderTenant) != "acme" {
		t.Errorf("below it came as %s for %s", r.URL.RequestURI(), r.Header.Get(forward.HeaderTenant))
	}
	for name, tk := range map[string]string{"expired": mint("fra", -time.Minute), "another region's": mint("iad", time.Minute)} {
		if resp, _ := w.getAnswer(g, clientCall{path: "/v1/chat/completions?spw=" + tk, body: askBody, host: "fra.chat.api.example:8080"}); resp.StatusCode != 401 {
			t.Errorf("an %s ticket got %d", name, resp.StatusCode)
		}
	}
	once := ticket.MintTicket(ticketKey(), ticket.RedirectTicket{Tenant: "acme", Service: "chat.api.example.", Region: "fra", Expires: time.Now().Add(ticket.Lifetime), Nonce: 42})
	other := ticket.MintTicket(ticketKey(), ticket.RedirectTicket{Tenant: "acme", Service: "talk.api.example.", Region: "fra", Expires: time.Now().Add(ticket.Lifetime), Nonce: 43})
	for i, c := range []struct {
		ticket string
		want   int
	}{{once, 200}, {once, 401}, {other, 401}} {
		resp, body := w.getAnswer(g, clientCall{path: "/v1/chat/completions?spw=" + c.ticket, body: askBody, host: "fra.chat.api.example:8080"})
		if resp.StatusCode != c.want || c.want == 401 && !strings.Contains(body, "one call, one service, one region") {
			t.Errorf("call %d got %d %s, want %d", i, resp.StatusCode, body, c.want)
		}
	}
	if strings.Contains(w.logs.String(), "spw=") {
		t.Error("a ticket is in the logs")
	}
}

// TestRefusedTicketsAreThrottled: an address that sends invalid tickets is soon refused without a check, and its
// valid keys are accepted.
func TestRefusedTicketsAreThrottled(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	good := ticket.MintTicket(ticketKey(), ticket.RedirectTicket{Tenant: "acme", Service: "chat.api.example.", Region: "fra", Expires: time.Now().Add(ticket.Lifetime), Nonce: 7})
	testkit.Eventually(t, "bad tickets are not checked any more", func() bool {
		resp, body := w.getAnswer(g, clientCall{path: "/v1/chat/completions?spw=bad", body: askBody})
		if resp.StatusCode != 401 && resp.StatusCode != 429 {
			t.Fatalf("a bad ticket got %d %s", resp.StatusCode, body)
		}
		return resp.StatusCode == 429 && errorCode(body) == openai.CodeClientRefusals && resp.Header.Get("Retry-After") != ""
	})
	if resp, body := w.getAnswer(g, clientCall{key: "key-acme", body: askBody}); resp.StatusCode != 200 {
		t.Errorf("a good key got %d %s", resp.StatusCode, body)
	}
	testkit.Eventually(t, "a good ticket passes again", func() bool {
		resp, _ := w.getAnswer(g, clientCall{path: "/v1/chat/completions?spw=" + good, body: askBody, host: "fra.chat.api.example:8080"})
		return resp.StatusCode == 200
	})
}

// TestHostSelectsAmongSeveralServices: with two services, a Host that names neither is refused. With the gateway's
// address or name, only the models that both serve are available.
func TestHostSelectsAmongSeveralServices(t *testing.T) {
	w := newWorld(t)
	w.changeDirective(func(d *uplink.Directive) {
		d.SpecVersion++
		d.Spec = []byte(strings.Replace(worldSpec(), "  - name: chat.api.example.\n", "  - name: chat.api.example.\n    models: [small]\n  - name: talk.api.example.\n    models: [small, large]\n", 1))
	})
	g := w.startGateway("fra", nil)
	w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"), roomyModel("large"))
	w.waitUntilServed(g, "small")
	large := strings.Replace(askBody, `"small"`, `"large"`, 1)
	for _, c := range []struct {
		host, body, code string
		status           int
	}{
		{"chat.api.example", askBody, "", 200},
		{"fra.chat.api.example:8080", askBody, "", 200},
		{"chat.api.example", large, openai.CodeModelNotFound, 404},
		{"talk.api.example", large, "", 200},
		{"evil.example", askBody, openai.CodeUnknownHost, 421},
		{"evil.example", large, openai.CodeUnknownHost, 421},
		{"xx.chat.api.example", askBody, openai.CodeUnknownHost, 421},
		{"", askBody, "", 200}, // the gateway's address
		{"", large, openai.CodeModelNotFound, 404},
		{"192.0.2.11:8080", large, openai.CodeModelNotFound, 404},
		{"[2001:db8::1]:8080", askBody, "", 200},
		{"localhost", askBody, "", 200},
		{"fra-gw", askBody, "", 200},
		{"fra-gw", large, openai.CodeModelNotFound, 404},
	} {
		if resp, body := w.getAnswer(g, clientCall{key: "key-acme", host: c.host, body: c.body}); resp.StatusCode != c.status || errorCode(body) != c.code {
			t.Errorf("%q, %.20s: %d %s, want %d", c.host, c.body, resp.StatusCode, body, c.status)
		}
	}
	for host, want := range map[string]int{"chat.api.example": 200, "evil.example": 421, "": 200} {
		if resp, body := w.getAnswer(g, clientCall{method: "GET", path: "/v1/models", key: "key-acme", host: host}); resp.StatusCode != want || want == 200 && strings.Contains(body, "large") {
			t.Errorf("the models of %q: %d %s", host, resp.StatusCode, body)
		}
	}
	if resp, _ := w.getAnswer(g, clientCall{method: "GET", path: "/healthz", host: "evil.example"}); resp.StatusCode != 200 {
		t.Errorf("a health check by any name got %d", resp.StatusCode)
	}
	if resp, body := w.getAnswer(g, clientCall{key: "key-acme", path: "/v1/audio/transcriptions", host: "evil.example", body: "x", header: http.Header{"X-Model": {"small"}}}); resp.StatusCode != 421 {
		t.Errorf("a passed path got %d %s", resp.StatusCode, body)
	}
}

// writeEvents sends events, each flushed separately.
func writeEvents(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		_, _ = io.WriteString(w, "data: "+e+"\n\n")
		w.(http.Flusher).Flush()
	}
}

const tokenEvent = `{"choices":[{"delta":{"content":"a"}}]}`

func TestStreamIsForwardedAndCancelled(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	left := make(chan time.Time, 1)
	w.startLocal(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
		writeEvents(rw, tokenEvent)
		<-r.Context().Done()
		left <- time.Now()
	}, roomyModel("small"))
	w.waitUntilServed(g, "small")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	resp, err := w.sendCall(ctx, g, clientCall{key: "key-acme", body: askBody})
	requireNoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != "data: "+tokenEvent+"\n" {
		t.Fatalf("first event is %q (%v)", line, err)
	}
	gone := time.Now()
	cancel()
	timed.AssertWithin(t, "the local's notice of a client that left", (<-left).Sub(gone), 100*time.Millisecond)
}

func TestRetryOnlyBeforeTheFirstByte(t *testing.T) {
	die := func() { panic(http.ErrAbortHandler) }
	for _, tc := range []struct {
		name   string
		first  http.HandlerFunc
		status int
		want   string // in the body
		second bool   // the other zone was tried
	}{
		{"dies at once", func(http.ResponseWriter, *http.Request) { die() }, 200, "hi", true},
		{"dies after the head", func(rw http.ResponseWriter, r *http.Request) { writeEvents(rw); rw.(http.Flusher).Flush(); die() }, 200, "hi", true},
		{"says it did not start", func(rw http.ResponseWriter, r *http.Request) {
			forward.WriteNotStarted(rw, openai.NoCapacity("small", 0))
		}, 200, "hi", true},
		{"dies after the first event", func(rw http.ResponseWriter, r *http.Request) { writeEvents(rw, tokenEvent); die() }, 200, openai.CodeUpstreamLost, false},
		{"the engine's own error", func(rw http.ResponseWriter, r *http.Request) { http.Error(rw, "CUDA error", 500) }, 500, "CUDA error", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			g := w.startGateway("fra", nil)
			a := w.startLocal(g, "fra", "fra-a", tc.first, roomyModel("small"))
			slow := roomyModel("small")
			slow.WorkAhead = [3]int64{400_000, 400_000, 400_000}
			b := w.startLocal(g, "fra", "fra-b", replyCompletion, slow)
			w.waitUntilServed(g, "small")
			w.waitForWorkerTotal("fra", 4)
			resp, body := w.getAnswer(g, clientCall{key: "key-acme", body: askBody})
			if resp.StatusCode != tc.status || !strings.Contains(body, tc.want) {
				t.Errorf("client got %d %q", resp.StatusCode, body)
			}
			if len(a.requests) != 1 || (len(b.requests) == 1) != tc.second {
				t.Fatalf("zones were tried %d and %d times", len(a.requests), len(b.requests))
			}
			if tc.second {
				if hop, err := forward.ParseHop((<-b.requests).Header); err != nil || hop.RetriesLeft != 0 {
					t.Errorf("the second try may be tried again: %+v (%v)", hop, err)
				}
			}
		})
	}
}

func TestRequestsAvoidLostZoneAtOnce(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	a := w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	b := w.startLocal(g, "fra", "fra-b", replyCompletion, roomyModel("small"))
	testkit.Eventually(t, "both zones serve", func() bool {
		_, _ = w.getAnswer(g, clientCall{key: "key-acme", body: askBody})
		return len(a.requests) > 0 && len(b.requests) > 0
	})
	a.server.CloseClientConnections()
	a.server.Listener.Close() // the process is dead; its missing summaries are noticed later
	for i := range 20 {
		if resp, body := w.getAnswer(g, clientCall{key: "key-acme", body: askBody}); resp.StatusCode != 200 {
			t.Fatalf("request %d got %d %s", i, resp.StatusCode, body)
		}
	}
}

// newPeerPair starts two regions that are peers.
func newPeerPair(t *testing.T) (w *testWorld, fra, iad *regional.Gateway) {
	w = newWorld(t)
	fra, iad = w.startGateway("fra", nil), w.startGateway("iad", nil)
	room := capacity.Summary{Models: []*capacity.ModelCapacity{roomyModel("small")}}
	w.changeDirective(func(d *uplink.Directive) {
		d.Peers = []uplink.PeerRegion{
			{Region: "fra", Gateways: []uplink.PeerGateway{{Name: "fra-gw", Endpoint: fra.PeerAddr().String()}}, Summary: &room, RTT: 90 * time.Millisecond},
			{Region: "iad", Gateways: []uplink.PeerGateway{{Name: "iad-gw", Endpoint: iad.PeerAddr().String()}}, Summary: &room, RTT: 90 * time.Millisecond},
		}
	})
	return w, fra, iad
}

func TestRequestSpillsToPeer(t *testing.T) {
	w, fra, iad := newPeerPair(t)
	l := w.startLocal(iad, "iad", "iad-a", replyCompletion, roomyModel("small"))
	testkit.Eventually(t, "the peer takes what is spilled", func() bool {
		resp, _ := w.getAnswer(fra, clientCall{key: "key-acme", body: askBody})
		return resp.StatusCode == 200
	})
	<-l.requests
	<-l.bodies
	body := strings.Replace(askBody, "secret", strings.Repeat("word ", 4000), 1) // large enough for Expect: 100-continue
	for _, b := range []string{askBody, body} {
		resp, text := w.getAnswer(fra, clientCall{key: "key-acme", body: b})
		if resp.StatusCode != 200 || !strings.Contains(text, "hi") {
			t.Fatalf("spilled request got %d %s", resp.StatusCode, text)
		}
		hop, err := forward.ParseHop((<-l.requests).Header)
		if got := string(<-l.bodies); err != nil || hop.Hops != 1 || hop.Tenant != "acme" || hop.Ticket.Parent != "iad-gw" || got != b {
			t.Fatalf("below the peer it came as %+v (%v), %d bytes of %d", hop, err, len(got), len(b))
		}
	}
	if resp, text := w.getAnswer(fra, clientCall{key: "key-europe", body: askBody}); resp.StatusCode != 503 || errorCode(text) != openai.CodeNoCapacity {
		t.Errorf("a resident of eu got %d %s, want 503: nothing in eu has room", resp.StatusCode, text)
	}
	if len(l.requests) != 0 {
		t.Error("a resident of eu was served in iad")
	}
}

func TestPeerRefusesForbiddenSpill(t *testing.T) {
	w, fra, iad := newPeerPair(t)
	l := w.startLocal(iad, "iad", "iad-a", replyCompletion, roomyModel("small"))
	testkit.Eventually(t, "the zone serves", func() bool { // a listed model shows only that a peer has it
		resp, _ := w.getAnswer(iad, clientCall{key: "key-acme", body: askBody})
		return resp.StatusCode == 200 && len(l.requests) == 1
	})
	<-l.requests
	_ = fra
	tr := forward.NewTransport(w.issueCerts(gatewayID("fra")).ClientTLS(forward.ALPN, nil))
	defer tr.CloseIdleConnections()
	send := func(hop forward.Hop, path string) (int, string, string) {
		in, err := http.NewRequest("POST", "http://x"+path, nil)
		requireNoError(t, err)
		req, err := forward.NewHopRequest(context.Background(), in, "https://"+iad.PeerAddr().String()+path, []byte(askBody), &hop)
		requireNoError(t, err)
		resp, err := tr.RoundTrip(req)
		requireNoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, errorCode(string(b)), resp.Header.Get(forward.HeaderNotStarted)
	}
	for _, tc := range []struct {
		name, path string
		hop        forward.Hop
		status     int
		code       string
	}{
		{"residency", openai.PathChat, forward.Hop{Tenant: "europe", Model: "small", Hops: 1}, 403, openai.CodeResidency},
		{"unknown tenant", openai.PathChat, forward.Hop{Tenant: "nobody", Model: "small", Hops: 1}, 401, openai.CodeInvalidAPIKey},
		{"unknown model", openai.PathChat, forward.Hop{Tenant: "acme", Model: "gpt", Hops: 1}, 404, openai.CodeModelNotFound},
		{"no second hop", openai.PathChat, forward.Hop{Tenant: "acme", Model: "large"}, 503, openai.CodeNoCapacity},
		{"no such path", "/v1/models", forward.Hop{Tenant: "acme", Model: "small"}, 404, openai.CodeNotFound},
	} {
		if status, c, mark := send(tc.hop, tc.path); status != tc.status || c != tc.code || mark != "1" {
			t.Errorf("%s: got %d %s, mark %q", tc.name, status, c, mark)
		}
	}
	if len(l.requests) != 0 {
		t.Error("a refused request was served")
	}
	if status, _, _ := send(forward.Hop{Tenant: "acme", Model: "small", Hops: 1}, openai.PathChat); status != 200 {
		t.Errorf("a proper request got %d", status)
	}
}

func TestPeerListenerAcceptsGatewaysOnly(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	foreign := newWorld(t)
	for name, tr := range map[string]*http.Transport{
		"a local":     forward.NewTransport(w.issueCerts(localID("fra", "fra-a")).ClientTLS(forward.ALPN, nil)),
		"a stranger":  forward.NewTransport(foreign.issueCerts(gatewayID("iad")).ClientTLS(forward.ALPN, nil)),
		"nobody":      forward.NewTransport(nil),
		"a plain one": {},
	} {
		scheme := "https://"
		if name == "a plain one" {
			scheme = "http://"
		}
		req, err := http.NewRequest("POST", scheme+g.PeerAddr().String()+openai.PathChat, strings.NewReader(askBody))
		requireNoError(t, err)
		resp, err := tr.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
			if name != "a plain one" || resp.StatusCode != 400 {
				t.Errorf("%s was let in: %d", name, resp.StatusCode)
			}
		}
		tr.CloseIdleConnections()
	}
}

func TestSummaryAndDemandReachTheGlobalTier(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.startLocal(g, "fra", "fra-b", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	_, _ = w.getAnswer(g, clientCall{key: "key-acme", body: askBody})
	_, _ = w.getAnswer(g, clientCall{key: "key-acme", body: strings.Replace(askBody, "small", "unserved", 1)}) // refused, but counted as demand
	gw := capacity.Path{Region: "fra", Instance: "fra-gw"}
	testkit.Eventually(t, "the sum of both zones and the demand are reported", func() bool {
		s := w.lastSummary(gw)
		return s != nil && s.Endpoint == g.PeerAddr().String() && s.FindModel("small") != nil && s.FindModel("small").Ready == 4 && len(s.Demand) == 2
	})
	for _, d := range w.lastSummary(gw).Demand {
		if d.Service != "chat.api.example." || d.Cell == "" || d.TokensPerSec <= 0 || d.RequestsPerSecMilli <= 0 {
			t.Errorf("demand is %+v", d)
		}
	}
	w.changeDirective(func(d *uplink.Directive) { d.Drains = []uplink.ActiveDrain{{Path: "fra/fra-a"}} })
	testkit.Eventually(t, "a drained zone is no longer offered", func() bool { m := w.lastSummary(gw).FindModel("small"); return m != nil && m.Ready == 2 })
	w.changeDirective(func(d *uplink.Directive) { d.Drains = []uplink.ActiveDrain{{Path: "fra"}} })
	testkit.Eventually(t, "a drained region says so", func() bool { return w.lastSummary(gw).Draining })
}

func TestDirectiveSurvivesARestartWithoutTheGlobalTier(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	g := w.startGateway("fra", func(c *regional.Config) { c.Dir = dir })
	w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	requireNoError(t, g.Stop(stopContext(t)))
	alone := w.startGateway("fra", func(c *regional.Config) { c.Dir, c.Globals = dir, nil })
	w.startLocal(alone, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(alone, "small")
	if resp, body := w.getAnswer(alone, clientCall{key: "key-acme", body: askBody}); resp.StatusCode != 200 {
		t.Fatalf("got %d %s", resp.StatusCode, body)
	}
}

func TestInvalidSpecLeavesLastGoodSpecInForce(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	w.changeDirective(func(d *uplink.Directive) { d.SpecVersion, d.Spec = 4, []byte("zone: [") })
	testkit.Eventually(t, "the bad spec is refused", func() bool { return strings.Contains(w.logs.String(), "spec refused") })
	if resp, body := w.getAnswer(g, clientCall{key: "key-acme", body: askBody}); resp.StatusCode != 200 {
		t.Fatalf("got %d %s", resp.StatusCode, body)
	}
}

func TestStatusAndExplainOverTheUplink(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	gw := capacity.Path{Region: "fra", Instance: "fra-gw"}
	status, err := w.global.QueryChild(stopContext(t), gw, "status", nil)
	requireNoError(t, err)
	for _, want := range []string{`"name":"fra"`, `"name":"fra-a"`, `"instance":"l1"`, `"name":"w1"`, `"state":"unknown"`, `"ready":2`} {
		if !strings.Contains(string(status), want) {
			t.Errorf("status has no %s: %s", want, status)
		}
	}
	records, err := w.global.QueryChild(stopContext(t), gw, "explain", []byte(`{"model":"best","tenant":"acme"}`))
	requireNoError(t, err)
	for _, want := range []string{`"tier":"regional"`, `"chosen":"fra/fra-a/l1"`, `"name":"wait"`, `"tier":"local"`, "alias"} {
		if !strings.Contains(string(records), want) {
			t.Errorf("explain has no %s: %s", want, records)
		}
	}
	if _, err := w.global.QueryChild(stopContext(t), gw, "explain", []byte(`{"model":"gpt"}`)); err == nil {
		t.Error("an unknown model was explained")
	}
}

func TestStopLetsStreamsFinish(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	finish := make(chan struct{})
	w.startLocal(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
		writeEvents(rw, tokenEvent)
		<-finish
		writeEvents(rw, "[DONE]")
	}, roomyModel("small"))
	w.waitUntilServed(g, "small")
	resp, err := w.sendCall(context.Background(), g, clientCall{key: "key-acme", body: askBody})
	requireNoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	stopped := make(chan error, 1)
	go func() { stopped <- g.Stop(stopContext(t)) }()
	testkit.Eventually(t, "nothing new is taken", func() bool {
		c, err := net.Dial("tcp", g.HTTPAddr().String())
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	close(finish)
	if body, err := io.ReadAll(resp.Body); err != nil || !strings.HasSuffix(string(body), "[DONE]\n\n") {
		t.Errorf("the stream was cut: %q (%v)", body, err)
	}
	requireNoError(t, <-stopped)
}

func TestPortInUseErrorNamesTheListener(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	_, err := regional.New(regional.Config{
		Name: "iad-gw", Region: "iad", Certs: w.issueCerts(gatewayID("iad")),
		HTTPListen: g.HTTPAddr().String(), PeerListen: "127.0.0.1:0", UplinkListen: "127.0.0.1:0",
	})
	if err == nil || !strings.Contains(err.Error(), g.HTTPAddr().String()) || !strings.Contains(err.Error(), "front door") {
		t.Fatalf("error is %v", err)
	}
}

func TestNotReadyWithoutASpec(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", func(c *regional.Config) { c.Globals = nil })
	resp, body := w.getAnswer(g, clientCall{key: "key-acme", body: askBody})
	if resp.StatusCode != 503 || errorCode(body) != openai.CodeNotReady {
		t.Fatalf("got %d %s", resp.StatusCode, body)
	}
	if resp, body := w.getAnswer(g, clientCall{method: "GET", path: "/healthz"}); resp.StatusCode != 200 || body != "ok\n" {
		t.Fatalf("healthz is %d %q", resp.StatusCode, body)
	}
}
