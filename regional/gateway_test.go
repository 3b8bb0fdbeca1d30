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
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/paths"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/ticket"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional"
)

func TestRequestReachesALocalWithWhatItNeeds(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", nil)
	l := w.local(g, "fra", "fra-a", reply, small("small"))
	w.served(g, "small")
	resp, body := w.ask(g, call{key: "key-acme", body: strings.Replace(ask, "small", "best", 1), header: http.Header{
		"Spillway-Tenant": {"root"}, "Spillway-Hop": {"1"}, "X-Client-Request-Id": {"mine-1"}, "Connection": {"X-Gone"}, "X-Gone": {"1"}, "Traceparent": {"00-a"},
	}})
	if resp.StatusCode != 200 || !strings.Contains(body, "hi") || resp.Header.Get("X-Request-Id") != "mine-1" ||
		resp.Header.Get("X-Spillway-Route") != "from/below/w1" || !strings.Contains(resp.Header.Get("Server-Timing"), `zone;desc="fra/fra-a/l1"`) {
		t.Fatalf("answer is %d %q %v", resp.StatusCode, body, resp.Header)
	}
	r, sent := <-l.hits, string(<-l.bodies)
	hop, err := relay.ParseHop(r.Header)
	if err != nil || hop.Tenant != "acme" || hop.Model != "small" || hop.Hops != 0 || hop.Ticket.Parent != "fra-gw" || hop.Ticket.N == 0 ||
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

func TestRefusals(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", nil)
	l := w.local(g, "fra", "fra-a", reply, small("small"), small("large"))
	w.served(g, "small")
	long := strings.Repeat("word ", 12_000)
	for _, tc := range []struct {
		name   string
		call   call
		status int
		code   string
	}{
		{"no key", call{body: ask}, 401, openai.CodeInvalidAPIKey},
		{"bad key", call{key: "key-nobody", body: ask}, 401, openai.CodeInvalidAPIKey},
		{"bad ticket", call{path: "/v1/chat/completions?spw=forged", body: ask}, 401, openai.CodeInvalidAPIKey},
		{"residency", call{key: "key-america", body: ask}, 403, openai.CodeResidency},
		{"model not allowed", call{key: "key-narrow", body: ask}, 403, openai.CodeModelNotAllowed},
		{"unknown model", call{key: "key-acme", body: strings.Replace(ask, "small", "gpt", 1)}, 404, openai.CodeModelNotFound},
		{"declared but served nowhere", call{key: "key-acme", body: strings.Replace(ask, "small", "unserved", 1)}, 503, openai.CodeNoCapacity},
		{"no model", call{key: "key-acme", body: `{}`}, 400, openai.CodeModelRequired},
		{"not JSON", call{key: "key-acme", body: `model=small`}, 400, openai.CodeInvalidJSON},
		{"cut JSON", call{key: "key-acme", body: ask[:40]}, 400, openai.CodeInvalidJSON},
		{"too large", call{key: "key-acme", body: `{"model":"small","prompt":"` + strings.Repeat("x", 100_001) + `"}`}, 413, openai.CodeBodyTooLarge},
		{"context", call{key: "key-acme", body: strings.Replace(ask, "secret", long, 1)}, 400, openai.CodeContextTooLong},
		{"unknown path", call{key: "key-acme", path: "/v1/nothing", body: ask}, 404, openai.CodeNotFound},
		{"wrong method", call{method: "GET", key: "key-acme"}, 405, openai.CodeMethodNotAllowed},
		{"bad class", call{key: "key-acme", body: ask, header: http.Header{"X-Spillway-Class": {"now"}}}, 400, openai.CodeInvalidValue},
		{"bad timeout", call{key: "key-acme", body: ask, header: http.Header{"X-Request-Timeout-Ms": {"5s"}}}, 400, openai.CodeInvalidValue},
		{"bad objective", call{key: "key-acme", body: ask, header: http.Header{"X-Slo-Ttft-Ms": {"0"}}}, 400, openai.CodeInvalidValue},
		{"bad deadline", call{key: "key-acme", body: ask, header: http.Header{"X-Spillway-Deadline-Ms": {"soon"}}}, 400, openai.CodeInvalidValue},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp, body := w.ask(g, tc.call)
			if resp.StatusCode != tc.status || code(body) != tc.code || resp.Header.Get("Content-Type") != "application/json" || resp.Header.Get("X-Request-Id") == "" {
				t.Fatalf("got %d %s, want %d with code %s", resp.StatusCode, body, tc.status, tc.code)
			}
			if allow := resp.Header.Get("Allow"); allow != "" && tc.status != 405 || allow != "POST" && tc.status == 405 {
				t.Errorf("Allow is %q with %d", allow, tc.status)
			}
			if tc.code == openai.CodeNotFound && !strings.Contains(body, paths.NotFoundMessage("x")[len(`no such path: "x" `):]) {
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
	if len(l.hits) != 0 {
		t.Errorf("%d refused requests reached the local", len(l.hits))
	}
	if logs := w.logs.String(); strings.Contains(logs, "secret") || strings.Contains(logs, "key-") {
		t.Errorf("a prompt or a key is in the logs:\n%s", logs)
	}
}

func TestLimitsAndTheirHeaders(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", nil)
	w.local(g, "fra", "fra-a", reply, small("small"))
	w.served(g, "small")
	resp, _ := w.ask(g, call{key: "key-limited", body: ask})
	if resp.StatusCode != 200 || resp.Header.Get("X-Ratelimit-Remaining-Requests") != "0" || resp.Header.Get("X-Ratelimit-Limit-Tokens") != "100000" {
		t.Fatalf("first is %d %v", resp.StatusCode, resp.Header)
	}
	resp, body := w.ask(g, call{key: "key-limited", body: ask})
	if resp.StatusCode != 429 || code(body) != openai.CodeRequests || resp.Header.Get("Retry-After") == "" || resp.Header.Get("X-Ratelimit-Reset-Requests") == "" {
		t.Fatalf("second is %d %s %v", resp.StatusCode, body, resp.Header)
	}
}

// TestProxiedTicketSaysWhoAsks: demand counts for the client that a global node speaks for, whatever headers claim.
func TestProxiedTicketSaysWhoAsks(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", nil)
	w.local(g, "fra", "fra-a", reply, small("small"))
	w.served(g, "small")
	atlas, err := geo.Open(geo.Config{Demo: true})
	must(t, err)
	cell := func(addr string) string { return geo.CellName(atlas.Locate(netip.MustParseAddr(addr)).Cell) }
	tk := ticket.Mint(ticketKey(), ticket.Ticket{
		Tenant: "acme", Service: "chat.api.example.", Region: "fra", Expires: time.Now().Add(ticket.Life), Client: "203.0.113.7",
	})
	resp, body := w.ask(g, call{
		path: "/v1/chat/completions?spw=" + tk, body: ask, host: "fra.chat.api.example:8080", header: http.Header{"X-Forwarded-For": {"198.51.100.7"}},
	})
	if resp.StatusCode != 200 {
		t.Fatalf("got %d %s", resp.StatusCode, body)
	}
	eventually(t, "the demand is reported", func() bool {
		s := w.heard(capacity.Path{Region: "fra", Instance: "fra-gw"})
		return s != nil && slices.ContainsFunc(s.Demand, func(d capacity.Demand) bool { return d.Cell == cell("203.0.113.7") })
	})
	if s := w.heard(capacity.Path{Region: "fra", Instance: "fra-gw"}); len(s.Demand) != 1 {
		t.Errorf("demand is %+v", s.Demand)
	}
}

func TestTicketIsAcceptedAndStripped(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", nil)
	l := w.local(g, "fra", "fra-a", reply, small("small"))
	w.served(g, "small")
	nonce := uint64(1000) // each ticket is a new one: what is refused is refused for itself
	mint := func(region string, left time.Duration) string {
		nonce++
		return ticket.Mint(ticketKey(), ticket.Ticket{Tenant: "acme", Service: "chat.api.example.", Region: region, Expires: time.Now().Add(left), Nonce: nonce})
	}
	resp, body := w.ask(g, call{path: "/v1/chat/completions?a=1&spw=" + mint("fra", time.Minute), body: ask, host: "fra.chat.api.example:8080"})
	if resp.StatusCode != 200 {
		t.Fatalf("a good ticket got %d %s", resp.StatusCode, body)
	}
	if r := <-l.hits; r.URL.RequestURI() != "/v1/chat/completions?a=1" || r.Header.Get(relay.HeaderTenant) != "acme" {
		t.Errorf("below it came as %s for %s", r.URL.RequestURI(), r.Header.Get(relay.HeaderTenant))
	}
	for name, tk := range map[string]string{"expired": mint("fra", -time.Minute), "another region's": mint("iad", time.Minute)} {
		if resp, _ := w.ask(g, call{path: "/v1/chat/completions?spw=" + tk, body: ask, host: "fra.chat.api.example:8080"}); resp.StatusCode != 401 {
			t.Errorf("an %s ticket got %d", name, resp.StatusCode)
		}
	}
	once := ticket.Mint(ticketKey(), ticket.Ticket{Tenant: "acme", Service: "chat.api.example.", Region: "fra", Expires: time.Now().Add(ticket.Life), Nonce: 42})
	other := ticket.Mint(ticketKey(), ticket.Ticket{Tenant: "acme", Service: "talk.api.example.", Region: "fra", Expires: time.Now().Add(ticket.Life), Nonce: 43})
	for i, c := range []struct {
		ticket string
		want   int
	}{{once, 200}, {once, 401}, {other, 401}} {
		resp, body := w.ask(g, call{path: "/v1/chat/completions?spw=" + c.ticket, body: ask, host: "fra.chat.api.example:8080"})
		if resp.StatusCode != c.want || c.want == 401 && !strings.Contains(body, "one call, one service, one region") {
			t.Errorf("call %d got %d %s, want %d", i, resp.StatusCode, body, c.want)
		}
	}
	if strings.Contains(w.logs.String(), "spw=") {
		t.Error("a ticket is in the logs")
	}
}

// TestRefusedTicketsAreThrottled: an address that sends bad tickets is soon told so without a check, and its good keys pass.
func TestRefusedTicketsAreThrottled(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", nil)
	w.local(g, "fra", "fra-a", reply, small("small"))
	w.served(g, "small")
	good := ticket.Mint(ticketKey(), ticket.Ticket{Tenant: "acme", Service: "chat.api.example.", Region: "fra", Expires: time.Now().Add(ticket.Life), Nonce: 7})
	eventually(t, "bad tickets are not checked any more", func() bool {
		resp, body := w.ask(g, call{path: "/v1/chat/completions?spw=bad", body: ask})
		if resp.StatusCode != 401 && resp.StatusCode != 429 {
			t.Fatalf("a bad ticket got %d %s", resp.StatusCode, body)
		}
		return resp.StatusCode == 429 && code(body) == openai.CodeClientRefusals && resp.Header.Get("Retry-After") != ""
	})
	if resp, body := w.ask(g, call{key: "key-acme", body: ask}); resp.StatusCode != 200 {
		t.Errorf("a good key got %d %s", resp.StatusCode, body)
	}
	eventually(t, "a good ticket passes again", func() bool {
		resp, _ := w.ask(g, call{path: "/v1/chat/completions?spw=" + good, body: ask, host: "fra.chat.api.example:8080"})
		return resp.StatusCode == 200
	})
}

// TestHostsOfSeveralServices: with two services a Host that names neither is refused, and by the gateway's address or name
// only what both serve is there.
func TestHostsOfSeveralServices(t *testing.T) {
	w := newWorld(t)
	w.change(func(d *uplink.Directive) {
		d.SpecVersion++
		d.Spec = []byte(strings.Replace(worldSpec(), "  - name: chat.api.example.\n", "  - name: chat.api.example.\n    models: [small]\n  - name: talk.api.example.\n    models: [small, large]\n", 1))
	})
	g := w.gateway("fra", nil)
	w.local(g, "fra", "fra-a", reply, small("small"), small("large"))
	w.served(g, "small")
	large := strings.Replace(ask, `"small"`, `"large"`, 1)
	for _, c := range []struct {
		host, body, code string
		status           int
	}{
		{"chat.api.example", ask, "", 200},
		{"fra.chat.api.example:8080", ask, "", 200},
		{"chat.api.example", large, openai.CodeModelNotFound, 404},
		{"talk.api.example", large, "", 200},
		{"evil.example", ask, openai.CodeUnknownHost, 421},
		{"evil.example", large, openai.CodeUnknownHost, 421},
		{"xx.chat.api.example", ask, openai.CodeUnknownHost, 421},
		{"", ask, "", 200}, // its address
		{"", large, openai.CodeModelNotFound, 404},
		{"192.0.2.11:8080", large, openai.CodeModelNotFound, 404},
		{"[2001:db8::1]:8080", ask, "", 200},
		{"localhost", ask, "", 200},
		{"fra-gw", ask, "", 200},
		{"fra-gw", large, openai.CodeModelNotFound, 404},
	} {
		if resp, body := w.ask(g, call{key: "key-acme", host: c.host, body: c.body}); resp.StatusCode != c.status || code(body) != c.code {
			t.Errorf("%q, %.20s: %d %s, want %d", c.host, c.body, resp.StatusCode, body, c.status)
		}
	}
	for host, want := range map[string]int{"chat.api.example": 200, "evil.example": 421, "": 200} {
		if resp, body := w.ask(g, call{method: "GET", path: "/v1/models", key: "key-acme", host: host}); resp.StatusCode != want || want == 200 && strings.Contains(body, "large") {
			t.Errorf("the models of %q: %d %s", host, resp.StatusCode, body)
		}
	}
	if resp, _ := w.ask(g, call{method: "GET", path: "/healthz", host: "evil.example"}); resp.StatusCode != 200 {
		t.Errorf("a health check by any name got %d", resp.StatusCode)
	}
	if resp, body := w.ask(g, call{key: "key-acme", path: "/v1/audio/transcriptions", host: "evil.example", body: "x", header: http.Header{"X-Model": {"small"}}}); resp.StatusCode != 421 {
		t.Errorf("a passed path got %d %s", resp.StatusCode, body)
	}
}

// sse sends events, each flushed by itself.
func sse(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		_, _ = io.WriteString(w, "data: "+e+"\n\n")
		w.(http.Flusher).Flush()
	}
}

const token = `{"choices":[{"delta":{"content":"a"}}]}`

func TestStreamsAndCancels(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", nil)
	left := make(chan time.Time, 1)
	w.local(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
		sse(rw, token)
		<-r.Context().Done()
		left <- time.Now()
	}, small("small"))
	w.served(g, "small")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	resp, err := w.do(ctx, g, call{key: "key-acme", body: ask})
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != "data: "+token+"\n" {
		t.Fatalf("first event is %q (%v)", line, err)
	}
	gone := time.Now()
	cancel()
	if d := (<-left).Sub(gone); d > 100*time.Millisecond {
		t.Errorf("the local noticed after %v, want within 100 ms", d)
	}
}

func TestRetryBeforeTheFirstByteAndNeverAfter(t *testing.T) {
	die := func() { panic(http.ErrAbortHandler) }
	for _, tc := range []struct {
		name   string
		first  http.HandlerFunc
		status int
		want   string // in the body
		second bool   // the other zone was tried
	}{
		{"dies at once", func(http.ResponseWriter, *http.Request) { die() }, 200, "hi", true},
		{"dies after the head", func(rw http.ResponseWriter, r *http.Request) { sse(rw); rw.(http.Flusher).Flush(); die() }, 200, "hi", true},
		{"says it did not start", func(rw http.ResponseWriter, r *http.Request) {
			relay.WriteNotStarted(rw, openai.NoCapacity("small", 0))
		}, 200, "hi", true},
		{"dies after the first event", func(rw http.ResponseWriter, r *http.Request) { sse(rw, token); die() }, 200, openai.CodeUpstreamLost, false},
		{"the engine's own error", func(rw http.ResponseWriter, r *http.Request) { http.Error(rw, "CUDA error", 500) }, 500, "CUDA error", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			g := w.gateway("fra", nil)
			a := w.local(g, "fra", "fra-a", tc.first, small("small"))
			slow := small("small")
			slow.Ahead = [3]int64{400_000, 400_000, 400_000}
			b := w.local(g, "fra", "fra-b", reply, slow)
			w.served(g, "small")
			w.tally("fra", 4)
			resp, body := w.ask(g, call{key: "key-acme", body: ask})
			if resp.StatusCode != tc.status || !strings.Contains(body, tc.want) {
				t.Errorf("client got %d %q", resp.StatusCode, body)
			}
			if len(a.hits) != 1 || (len(b.hits) == 1) != tc.second {
				t.Fatalf("zones were tried %d and %d times", len(a.hits), len(b.hits))
			}
			if tc.second {
				if hop, err := relay.ParseHop((<-b.hits).Header); err != nil || hop.RetriesLeft != 0 {
					t.Errorf("the second try may be tried again: %+v (%v)", hop, err)
				}
			}
		})
	}
}

func TestALostZoneIsLeftAtOnce(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", nil)
	a := w.local(g, "fra", "fra-a", reply, small("small"))
	b := w.local(g, "fra", "fra-b", reply, small("small"))
	eventually(t, "both zones serve", func() bool {
		_, _ = w.ask(g, call{key: "key-acme", body: ask})
		return len(a.hits) > 0 && len(b.hits) > 0
	})
	a.server.CloseClientConnections()
	a.server.Listener.Close() // the process is gone; its summaries will be noticed missing later
	for i := range 20 {
		if resp, body := w.ask(g, call{key: "key-acme", body: ask}); resp.StatusCode != 200 {
			t.Fatalf("request %d got %d %s", i, resp.StatusCode, body)
		}
	}
}

// pair is two regions that know each other.
func pair(t *testing.T) (w *world, fra, iad *regional.Gateway) {
	w = newWorld(t)
	fra, iad = w.gateway("fra", nil), w.gateway("iad", nil)
	room := capacity.Summary{Models: []capacity.Model{small("small")}}
	w.change(func(d *uplink.Directive) {
		d.Peers = []uplink.Peer{
			{Region: "fra", Gateways: []uplink.PeerGateway{{Name: "fra-gw", Endpoint: fra.PeerAddr().String()}}, Summary: &room, RTT: 90 * time.Millisecond},
			{Region: "iad", Gateways: []uplink.PeerGateway{{Name: "iad-gw", Endpoint: iad.PeerAddr().String()}}, Summary: &room, RTT: 90 * time.Millisecond},
		}
	})
	return w, fra, iad
}

func TestSpillToAPeer(t *testing.T) {
	w, fra, iad := pair(t)
	l := w.local(iad, "iad", "iad-a", reply, small("small"))
	eventually(t, "the peer takes what is spilled", func() bool {
		resp, _ := w.ask(fra, call{key: "key-acme", body: ask})
		return resp.StatusCode == 200
	})
	<-l.hits
	<-l.bodies
	body := strings.Replace(ask, "secret", strings.Repeat("word ", 4000), 1) // large enough to ask before sending
	for _, b := range []string{ask, body} {
		resp, text := w.ask(fra, call{key: "key-acme", body: b})
		if resp.StatusCode != 200 || !strings.Contains(text, "hi") {
			t.Fatalf("spilled request got %d %s", resp.StatusCode, text)
		}
		hop, err := relay.ParseHop((<-l.hits).Header)
		if got := string(<-l.bodies); err != nil || hop.Hops != 1 || hop.Tenant != "acme" || hop.Ticket.Parent != "iad-gw" || got != b {
			t.Fatalf("below the peer it came as %+v (%v), %d bytes of %d", hop, err, len(got), len(b))
		}
	}
	if resp, text := w.ask(fra, call{key: "key-europe", body: ask}); resp.StatusCode != 503 || code(text) != openai.CodeNoCapacity {
		t.Errorf("a resident of eu got %d %s, want 503: nothing in eu has room", resp.StatusCode, text)
	}
	if len(l.hits) != 0 {
		t.Error("a resident of eu was served in iad")
	}
}

func TestPeerRefusesWhatItMustNotServe(t *testing.T) {
	w, fra, iad := pair(t)
	l := w.local(iad, "iad", "iad-a", reply, small("small"))
	eventually(t, "the zone serves", func() bool { // that the model is listed says no more than that a peer has it
		resp, _ := w.ask(iad, call{key: "key-acme", body: ask})
		return resp.StatusCode == 200 && len(l.hits) == 1
	})
	<-l.hits
	_ = fra
	tr := relay.NewTransport(w.certs(gatewayID("fra")).Client(relay.ALPN, nil))
	defer tr.CloseIdleConnections()
	send := func(hop relay.Hop, path string) (int, string, string) {
		in, err := http.NewRequest("POST", "http://x"+path, nil)
		must(t, err)
		req, err := relay.Outbound(context.Background(), in, "https://"+iad.PeerAddr().String()+path, []byte(ask), &hop)
		must(t, err)
		resp, err := tr.RoundTrip(req)
		must(t, err)
		defer func() { _ = resp.Body.Close() }()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, code(string(b)), resp.Header.Get(relay.HeaderNotStarted)
	}
	for _, tc := range []struct {
		name, path string
		hop        relay.Hop
		status     int
		code       string
	}{
		{"residency", openai.PathChat, relay.Hop{Tenant: "europe", Model: "small", Hops: 1}, 403, openai.CodeResidency},
		{"unknown tenant", openai.PathChat, relay.Hop{Tenant: "nobody", Model: "small", Hops: 1}, 401, openai.CodeInvalidAPIKey},
		{"unknown model", openai.PathChat, relay.Hop{Tenant: "acme", Model: "gpt", Hops: 1}, 404, openai.CodeModelNotFound},
		{"no second hop", openai.PathChat, relay.Hop{Tenant: "acme", Model: "large"}, 503, openai.CodeNoCapacity},
		{"no such path", "/v1/models", relay.Hop{Tenant: "acme", Model: "small"}, 404, openai.CodeNotFound},
	} {
		if status, c, mark := send(tc.hop, tc.path); status != tc.status || c != tc.code || mark != "1" {
			t.Errorf("%s: got %d %s, mark %q", tc.name, status, c, mark)
		}
	}
	if len(l.hits) != 0 {
		t.Error("a refused request was served")
	}
	if status, _, _ := send(relay.Hop{Tenant: "acme", Model: "small", Hops: 1}, openai.PathChat); status != 200 {
		t.Errorf("a proper request got %d", status)
	}
}

func TestPeerDoorTakesGatewaysOnly(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", nil)
	foreign := newWorld(t)
	for name, tr := range map[string]*http.Transport{
		"a local":     relay.NewTransport(w.certs(localID("fra", "fra-a")).Client(relay.ALPN, nil)),
		"a stranger":  relay.NewTransport(foreign.certs(gatewayID("iad")).Client(relay.ALPN, nil)),
		"nobody":      relay.NewTransport(nil),
		"a plain one": {},
	} {
		scheme := "https://"
		if name == "a plain one" {
			scheme = "http://"
		}
		req, err := http.NewRequest("POST", scheme+g.PeerAddr().String()+openai.PathChat, strings.NewReader(ask))
		must(t, err)
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
	g := w.gateway("fra", nil)
	w.local(g, "fra", "fra-a", reply, small("small"))
	w.local(g, "fra", "fra-b", reply, small("small"))
	w.served(g, "small")
	_, _ = w.ask(g, call{key: "key-acme", body: ask})
	_, _ = w.ask(g, call{key: "key-acme", body: strings.Replace(ask, "small", "unserved", 1)}) // refused, and demanded all the same
	gw := capacity.Path{Region: "fra", Instance: "fra-gw"}
	eventually(t, "the sum of both zones and the demand are reported", func() bool {
		s := w.heard(gw)
		return s != nil && s.Endpoint == g.PeerAddr().String() && s.Model("small") != nil && s.Model("small").Ready == 4 && len(s.Demand) == 2
	})
	for _, d := range w.heard(gw).Demand {
		if d.Service != "chat.api.example." || d.Cell == "" || d.TokensPerSec <= 0 || d.RequestsPerSecMilli <= 0 {
			t.Errorf("demand is %+v", d)
		}
	}
	w.change(func(d *uplink.Directive) { d.Drains = []uplink.Drain{{Path: "fra/fra-a"}} })
	eventually(t, "a drained zone is no longer offered", func() bool { m := w.heard(gw).Model("small"); return m != nil && m.Ready == 2 })
	w.change(func(d *uplink.Directive) { d.Drains = []uplink.Drain{{Path: "fra"}} })
	eventually(t, "a drained region says so", func() bool { return w.heard(gw).Draining })
}

func TestDirectiveSurvivesARestartWithoutTheGlobalTier(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	g := w.gateway("fra", func(c *regional.Config) { c.Dir = dir })
	w.local(g, "fra", "fra-a", reply, small("small"))
	w.served(g, "small")
	must(t, g.Stop(soon(t)))
	alone := w.gateway("fra", func(c *regional.Config) { c.Dir, c.Globals = dir, nil })
	w.local(alone, "fra", "fra-a", reply, small("small"))
	w.served(alone, "small")
	if resp, body := w.ask(alone, call{key: "key-acme", body: ask}); resp.StatusCode != 200 {
		t.Fatalf("got %d %s", resp.StatusCode, body)
	}
}

func TestBadSpecLeavesTheGoodOneInForce(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", nil)
	w.local(g, "fra", "fra-a", reply, small("small"))
	w.served(g, "small")
	w.change(func(d *uplink.Directive) { d.SpecVersion, d.Spec = 4, []byte("zone: [") })
	eventually(t, "the bad spec is refused", func() bool { return strings.Contains(w.logs.String(), "spec refused") })
	if resp, body := w.ask(g, call{key: "key-acme", body: ask}); resp.StatusCode != 200 {
		t.Fatalf("got %d %s", resp.StatusCode, body)
	}
}

func TestStatusAndExplainOverTheUplink(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", nil)
	w.local(g, "fra", "fra-a", reply, small("small"))
	w.served(g, "small")
	gw := capacity.Path{Region: "fra", Instance: "fra-gw"}
	status, err := w.global.Ask(soon(t), gw, "status", nil)
	must(t, err)
	for _, want := range []string{`"name":"fra"`, `"name":"fra-a"`, `"instance":"l1"`, `"name":"w1"`, `"state":"unknown"`, `"ready":2`} {
		if !strings.Contains(string(status), want) {
			t.Errorf("status has no %s: %s", want, status)
		}
	}
	records, err := w.global.Ask(soon(t), gw, "explain", []byte(`{"model":"best","tenant":"acme"}`))
	must(t, err)
	for _, want := range []string{`"tier":"regional"`, `"chosen":"fra/fra-a/l1"`, `"name":"wait"`, `"tier":"local"`, "alias"} {
		if !strings.Contains(string(records), want) {
			t.Errorf("explain has no %s: %s", want, records)
		}
	}
	if _, err := w.global.Ask(soon(t), gw, "explain", []byte(`{"model":"gpt"}`)); err == nil {
		t.Error("an unknown model was explained")
	}
}

func TestStopLetsStreamsFinish(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", nil)
	finish := make(chan struct{})
	w.local(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
		sse(rw, token)
		<-finish
		sse(rw, "[DONE]")
	}, small("small"))
	w.served(g, "small")
	resp, err := w.do(context.Background(), g, call{key: "key-acme", body: ask})
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	stopped := make(chan error, 1)
	go func() { stopped <- g.Stop(soon(t)) }()
	eventually(t, "nothing new is taken", func() bool {
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
	must(t, <-stopped)
}

func TestPortInUseSaysWhoWantsIt(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", nil)
	_, err := regional.New(regional.Config{
		Name: "iad-gw", Region: "iad", Certs: w.certs(gatewayID("iad")),
		HTTPListen: g.HTTPAddr().String(), PeerListen: "127.0.0.1:0", UplinkListen: "127.0.0.1:0",
	})
	if err == nil || !strings.Contains(err.Error(), g.HTTPAddr().String()) || !strings.Contains(err.Error(), "front door") {
		t.Fatalf("error is %v", err)
	}
}

func TestNotReadyWithoutASpec(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", func(c *regional.Config) { c.Globals = nil })
	resp, body := w.ask(g, call{key: "key-acme", body: ask})
	if resp.StatusCode != 503 || code(body) != openai.CodeNotReady {
		t.Fatalf("got %d %s", resp.StatusCode, body)
	}
	if resp, body := w.ask(g, call{method: "GET", path: "/healthz"}); resp.StatusCode != 200 || body != "ok\n" {
		t.Fatalf("healthz is %d %q", resp.StatusCode, body)
	}
}
