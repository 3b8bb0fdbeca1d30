package regional_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional"
)

// countingLink carries TCP between two gateways and counts the bytes of the caller.
type countingLink struct {
	listener  net.Listener
	bytesSent atomic.Int64
}

func newCountingLink(t *testing.T, far net.Addr) *countingLink {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	requireNoError(t, err)
	w := &countingLink{listener: l}
	var all sync.WaitGroup
	over := make(chan struct{})
	all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", far.String())
			if err != nil {
				_ = near.Close()
				continue
			}
			all.Go(func() { w.copyAndCount(up, near, &w.bytesSent) })
			all.Go(func() { w.copyAndCount(near, up, new(atomic.Int64)) })
			all.Go(func() { <-over; _, _ = near.Close(), up.Close() })
		}
	})
	t.Cleanup(func() { _ = l.Close(); close(over); all.Wait() })
	return w
}

func (w *countingLink) copyAndCount(to, from net.Conn, count *atomic.Int64) {
	for buf := make([]byte, 32<<10); ; {
		n, err := from.Read(buf)
		count.Add(int64(n))
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			_, _ = to.Close(), from.Close()
			return
		}
	}
}

// peerRegions is two real gateways, each with a report that the other has room, and the link from fra to iad.
type peerRegions struct {
	*testWorld
	fra, iad       *regional.Gateway
	fraReg, iadReg *prometheus.Registry
	link           *countingLink
}

func newPeerRegions(t *testing.T, iad func(*regional.Config)) *peerRegions {
	t.Helper()
	return newConfiguredPeerRegions(t, nil, iad)
}

// newConfiguredPeerRegions is newPeerRegions with changes of both configs.
func newConfiguredPeerRegions(t *testing.T, fra, iad func(*regional.Config)) *peerRegions {
	t.Helper()
	r := &peerRegions{testWorld: newWorld(t), fraReg: prometheus.NewRegistry(), iadReg: prometheus.NewRegistry()}
	r.iad = r.startGateway("iad", func(c *regional.Config) {
		c.Registry = r.iadReg
		if iad != nil {
			iad(c)
		}
	})
	r.fra = r.startGateway("fra", func(c *regional.Config) {
		c.Registry = r.fraReg
		if fra != nil {
			fra(c)
		}
	})
	r.link = newCountingLink(t, r.iad.PeerAddr())
	room := capacity.Summary{Models: []*capacity.ModelCapacity{roomyModel("small")}}
	r.changeDirective(func(d *uplink.Directive) {
		d.Peers = []uplink.PeerRegion{
			{Region: "fra", Gateways: []uplink.PeerGateway{{Name: "fra-gw", Endpoint: r.fra.PeerAddr().String()}}, Summary: &room, RTT: 90 * time.Millisecond},
			{Region: "iad", Gateways: []uplink.PeerGateway{{Name: "iad-gw", Endpoint: r.link.listener.Addr().String()}}, Summary: &room, RTT: 90 * time.Millisecond},
		}
	})
	r.waitUntilServed(r.fra, "small")
	return r
}

// readAdmissions returns the outcomes of tenants' requests that a gateway has counted.
func readAdmissions(t *testing.T, reg *prometheus.Registry) string {
	t.Helper()
	families, err := reg.Gather()
	requireNoError(t, err)
	var out []string
	for _, f := range families {
		if f.GetName() != "spillway_regional_admissions_total" {
			continue
		}
		for _, m := range f.Metric {
			if m.Label[1].GetValue() == "" {
				continue // refused before the tenant was identified
			}
			out = append(out, fmt.Sprintf("%s:%s=%v", m.Label[1].GetValue(), m.Label[0].GetValue(), m.Counter.GetValue()))
		}
	}
	return strings.Join(out, " ")
}

// largeBody returns a body large enough for Expect: 100-continue.
func largeBody() string { return strings.Replace(askBody, "secret", strings.Repeat("word ", 5000), 1) }

func TestSpillHappensWhenTheRegionHasNoRoom(t *testing.T) {
	r := newPeerRegions(t, nil)
	served := make(chan http.Header, 16)
	r.startLocal(r.iad, "iad", "iad-a", func(rw http.ResponseWriter, q *http.Request) { served <- q.Header; replyCompletion(rw, q) }, roomyModel("small"))
	r.waitForWorkerTotal("iad", 2)
	r.testWorld.waitUntilServed(r.iad, "small")
	home := roomyModel("small")
	l := r.startLocal(r.fra, "fra", "fra-a", replyCompletion, home)
	r.waitForWorkerTotal("fra", 2)
	r.testWorld.waitUntilServed(r.fra, "small")
	if resp, _ := r.getAnswer(r.fra, clientCall{key: "key-acme", body: askBody}); resp.StatusCode != 200 || len(l.requests) != 1 || len(served) != 0 {
		t.Fatalf("with room at home it got %d, %d at home and %d away", resp.StatusCode, len(l.requests), len(served))
	}
	l.mu.Lock()
	gone := *home
	gone.Ready = 0
	l.summary.Models = []*capacity.ModelCapacity{&gone}
	l.mu.Unlock()
	testkit.Eventually(t, "home has no worker", func() bool {
		s := r.lastSummary(capacity.Path{Region: "fra", Instance: "fra-gw"})
		return s != nil && s.FindModel("small") != nil && s.FindModel("small").Ready == 0
	})
	for _, body := range []string{askBody, largeBody()} {
		resp, text := r.getAnswer(r.fra, clientCall{key: "key-acme", body: body})
		if resp.StatusCode != 200 || !strings.Contains(text, "hi") {
			t.Fatalf("got %d %s", resp.StatusCode, text)
		}
		if h := <-served; h.Get(forward.HeaderHop) != "1" || h.Get(forward.HeaderTenant) != "acme" || h.Get("Authorization") != "" {
			t.Errorf("below the peer it came with %v", h)
		}
	}
	want := "# HELP spillway_regional_spills_total Requests spilled to a peer region, by region and reason.\n# TYPE spillway_regional_spills_total counter\nspillway_regional_spills_total{reason=\"no_local_capacity\",to=\"iad\"} 2\n"
	testkit.Eventually(t, "both spills are counted", func() bool {
		return testutil.GatherAndCompare(r.fraReg, strings.NewReader(want), "spillway_regional_spills_total") == nil
	})
	if len(l.requests) != 1 {
		t.Errorf("home was asked %d times", len(l.requests))
	}
	testkit.Eventually(t, "the round trip to the peer is reported", func() bool {
		s := r.lastSummary(capacity.Path{Region: "fra", Instance: "fra-gw"})
		for i := range s.RTTs {
			if region, ok := s.RTTs[i].PeerRegion(); ok && region == "iad" && s.RTTs[i].Samples > 0 && s.RTTs[i].MedianMicros() > 0 {
				return true
			}
		}
		return false
	})
}

// Both regions are full and each has a report that the other has room: a request must not be spilled back.
func TestSpilledRequestIsNotSpilledAgain(t *testing.T) {
	r := newPeerRegions(t, nil)
	r.testWorld.waitUntilServed(r.iad, "small") // by its report of fra
	resp, text := r.getAnswer(r.fra, clientCall{key: "key-acme", body: largeBody()})
	if resp.StatusCode != 503 || errorCode(text) != openai.CodeNoCapacity || resp.Header.Get("Retry-After") == "" || resp.Header.Get(forward.HeaderNotStarted) != "" {
		t.Fatalf("got %d %s %v", resp.StatusCode, text, resp.Header)
	}
	if got := readAdmissions(t, r.iadReg); got != "acme:no_capacity=1" {
		t.Errorf("the peer counted %q, want one refusal", got)
	}
	if got := readAdmissions(t, r.fraReg); got != "acme:admitted=1" {
		t.Errorf("home counted %q, want the client's request alone", got)
	}
	if n := r.link.bytesSent.Load(); n > 16<<10 {
		t.Errorf("%d bytes were sent for a refusal, the body must stay at home", n)
	}
}

// The two gateways have different specs, as shortly after a change: the receiver's residency applies.
func TestReceivingRegionEnforcesResidency(t *testing.T) {
	strict, err := spec.Decode("strict", []byte(strings.Replace(worldSpec(), "  - name: europe", "    residency: [eu]\n  - name: europe", 1)))
	requireNoError(t, err)
	r := newPeerRegions(t, func(c *regional.Config) { c.Globals, c.Spec = nil, strict })
	l := r.startLocal(r.iad, "iad", "iad-a", replyCompletion, roomyModel("small"))
	testkit.Eventually(t, "the peer serves", func() bool {
		resp, _ := r.getAnswer(r.iad, clientCall{key: "key-urgent", body: askBody})
		return resp.StatusCode == 200
	})
	before := len(l.requests)
	for _, body := range []string{askBody, largeBody()} {
		resp, text := r.getAnswer(r.fra, clientCall{key: "key-acme", body: body})
		if resp.StatusCode != 503 || errorCode(text) != openai.CodeNoCapacity {
			t.Errorf("got %d %s, want 503: where it may be served nothing has room", resp.StatusCode, text)
		}
	}
	if n := len(l.requests) - before; n != 0 {
		t.Errorf("%d requests of a tenant of eu were served in iad", n)
	}
	if got := readAdmissions(t, r.iadReg); !strings.Contains(got, "acme:residency=2") {
		t.Errorf("the peer counted %q", got)
	}
	if n := r.link.bytesSent.Load(); n > 16<<10 {
		t.Errorf("%d bytes were sent, the large body among them", n)
	}
}

// TestResidentPromptsStayInTheirRegion: the prompt of a tenant with a residency fence does not leave the region
// for a peer outside it, measured in bytes on the wire, for any size and whether or not the region has room. The
// prompt of a tenant without a fence does.
func TestResidentPromptsStayInTheirRegion(t *testing.T) {
	for name, fence := range map[string]string{"regions": "regions: [fra]", "residency": "residency: [eu]", "both": "regions: [fra, iad]\n    residency: [eu]"} {
		t.Run(name, func(t *testing.T) {
			r := newPeerRegions(t, nil)
			r.changeDirective(func(d *uplink.Directive) {
				d.SpecVersion++
				d.Spec = []byte(strings.Replace(string(d.Spec), "    residency: [eu]\n  - name: america", "    "+fence+"\n  - name: america", 1))
			})
			away := r.startLocal(r.iad, "iad", "iad-a", replyCompletion, roomyModel("small"))
			r.waitForWorkerTotal("iad", 2)
			r.testWorld.waitUntilServed(r.iad, "small")
			busy := roomyModel("small")
			for _, room := range []bool{false, true} { // first the region has no room at all, then some after a wait
				if room {
					busy.WorkAhead = [3]int64{400_000, 400_000, 400_000}
					r.startLocal(r.fra, "fra", "fra-a", replyCompletion, busy)
					r.waitForWorkerTotal("fra", 2)
				}
				for _, size := range []int{9_000, 24_000} { // the larger one uses Expect: 100-continue
					body := strings.Replace(askBody, "secret", strings.Repeat("x", size), 1)
					before, asked := r.link.bytesSent.Load(), readAdmissions(t, r.iadReg)
					resp, text := r.getAnswer(r.fra, clientCall{key: "key-europe", body: body})
					if !room && resp.StatusCode != 503 || resp.StatusCode == 200 && !room {
						t.Errorf("room %v, %d bytes: got %d %s", room, size, resp.StatusCode, text)
					}
					if n := r.link.bytesSent.Load() - before; n > int64(size)/2 {
						t.Errorf("room %v: of a prompt of %d bytes %d crossed the wire", room, size, n)
					}
					if got := readAdmissions(t, r.iadReg); got != asked {
						t.Errorf("room %v, %d bytes: the peer was asked: %q, before %q", room, size, got, asked)
					}
				}
			}
			if n := len(away.requests); n != 0 {
				t.Errorf("%d requests were served outside the fence", n)
			}
			before := r.link.bytesSent.Load()
			testkit.Eventually(t, "a prompt without a fence leaves", func() bool {
				r.getAnswer(r.fra, clientCall{key: "key-acme", body: strings.Replace(askBody, "secret", strings.Repeat("x", 9_000), 1)})
				return r.link.bytesSent.Load()-before > 9_000
			})
		})
	}
}

// The peer responds before the body: with a refusal, or with 100 Continue to admit the request.
func TestPeerAnswersBeforeTheBody(t *testing.T) {
	r := newPeerRegions(t, nil)
	l := r.startLocal(r.iad, "iad", "iad-a", replyCompletion, roomyModel("small"))
	r.waitForWorkerTotal("iad", 2)
	r.testWorld.waitUntilServed(r.iad, "small")
	for tenant, want := range map[string]string{"europe": "HTTP/1.1 403 ", "acme": "HTTP/1.1 100 "} {
		conn, err := tls.Dial("tcp", r.iad.PeerAddr().String(), r.issueCerts(gatewayID("fra")).ClientTLS(forward.ALPN, nil))
		requireNoError(t, err)
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, err = fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nExpect: 100-continue\r\n"+
			"Spillway-Tenant: %s\r\nSpillway-Class: standard\r\nSpillway-Model: small\r\nSpillway-Hop: 1\r\nSpillway-Prompt-Tokens: 9\r\n\r\n", len(askBody), tenant)
		requireNoError(t, err)
		in := bufio.NewReader(conn)
		line, err := in.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, want) {
			t.Fatalf("%s: the first word is %q (%v), want %s", tenant, line, err, want)
		}
		if tenant == "acme" {
			_, _ = in.ReadString('\n')
			_, err = io.WriteString(conn, askBody)
			requireNoError(t, err)
			resp, err := http.ReadResponse(in, nil)
			requireNoError(t, err)
			if _ = resp.Body.Close(); resp.StatusCode != 200 {
				t.Errorf("got %d", resp.StatusCode)
			}
		}
	}
	if len(l.requests) != 1 {
		t.Errorf("%d requests were served, want 1", len(l.requests))
	}
}

// readCounter reads one counter of a registry.
func readCounter(t *testing.T, reg *prometheus.Registry, name string, labels ...string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	requireNoError(t, err)
	for _, f := range families {
		if f.GetName() != "spillway_regional_"+name {
			continue
		}
		for _, m := range f.Metric {
			text := fmt.Sprint(m.Label)
			ok := true
			for _, l := range labels {
				ok = ok && strings.Contains(text, `"`+l+`"`)
			}
			if ok {
				sum += m.Counter.GetValue()
			}
		}
	}
	return sum
}

// A peer whose state is worse than its last report refuses before it does any work, and the request is served in
// its own region: with a small body, which was sent along, and with a large one, which was not. This spends no
// retry.
func TestRefusedSpillIsServedLocally(t *testing.T) {
	for name, body := range map[string]string{"small": askBody, "large": largeBody()} {
		t.Run(name, func(t *testing.T) {
			r := newPeerRegions(t, nil)
			busy, busier := roomyModel("small"), roomyModel("small")
			busy.WorkAhead, busier.WorkAhead = [3]int64{40_000, 40_000, 40_000}, [3]int64{200_000, 200_000, 200_000} // 1 s and 5 s of work
			there := r.startLocal(r.iad, "iad", "iad-a", replyCompletion, busier)
			r.waitForWorkerTotal("iad", 2)
			r.testWorld.waitUntilServed(r.iad, "small")
			home := r.startLocal(r.fra, "fra", "fra-a", replyCompletion, busy)
			r.waitForWorkerTotal("fra", 2)
			r.testWorld.waitUntilServed(r.fra, "small")
			before := r.link.bytesSent.Load()
			for i := range 2 {
				if resp, text := r.getAnswer(r.fra, clientCall{key: "key-acme", body: body}); resp.StatusCode != 200 || len(home.requests) != i+1 {
					t.Fatalf("got %d %s, %d at home", resp.StatusCode, text, len(home.requests))
				}
			}
			if len(there.requests) != 0 {
				t.Error("the peer served what it had refused")
			}
			refused := readCounter(t, r.iadReg, "spilled_in_total", "sooner_at_home") // a second refusal if the pause was over by then
			if n := readCounter(t, r.fraReg, "spill_refusals_total", "iad"); n < 1 || n != refused {
				t.Errorf("home counts %v refusals, the peer %v", n, refused)
			}
			if held := readCounter(t, r.fraReg, "spills_held_total", "iad", "refused"); refused+held != 2 {
				t.Errorf("of two requests %v were refused and %v held back", refused, held)
			}
			if n := readCounter(t, r.fraReg, "retries_total"); n != 0 {
				t.Errorf("%v retries were spent", n)
			}
			if n := r.link.bytesSent.Load() - before; n > 16<<10 {
				t.Errorf("%d bytes were sent for a refusal", n)
			}
		})
	}
}

// A request that a peer would serve sooner, but that stays, is counted with its reason.
func TestHeldSpillsAreCountedByReason(t *testing.T) {
	for _, tc := range []struct {
		why    string
		tenant string
		spec   func(string) string
		peer   func(*uplink.PeerRegion)
	}{
		{why: "residency", tenant: "europe"},
		{why: "off", spec: func(s string) string { return strings.Replace(s, "routing:", "routing:\n  spill: false", 1) }},
		{why: "margin", spec: func(s string) string { return strings.Replace(s, "routing:", "routing:\n  spill_margin: 5s", 1) }},
		{why: "stale", peer: func(p *uplink.PeerRegion) { p.Age = 5 * time.Second }},
		{why: "no_headroom", peer: func(p *uplink.PeerRegion) {
			s := *p.Summary
			s.Models = []*capacity.ModelCapacity{roomyModel("small")}
			s.Models[0].Headroom = [3]int64{}
			p.Summary = &s
		}},
	} {
		t.Run(tc.why, func(t *testing.T) {
			r := newPeerRegions(t, nil)
			busy := roomyModel("small")
			busy.WorkAhead = [3]int64{80_000, 80_000, 80_000} // 2 s of work
			r.startLocal(r.fra, "fra", "fra-a", replyCompletion, busy)
			r.waitForWorkerTotal("fra", 2)
			r.changeDirective(func(d *uplink.Directive) {
				if tc.spec != nil {
					d.SpecVersion++
					d.Spec = []byte(tc.spec(string(d.Spec)))
				}
				d.Peers = slices.Clone(d.Peers)
				for i := range d.Peers {
					if tc.peer != nil {
						tc.peer(&d.Peers[i])
					}
				}
			})
			tenant := "acme"
			if tc.tenant != "" {
				tenant = tc.tenant
			}
			testkit.Eventually(t, "held back for "+tc.why, func() bool {
				resp, text := r.getAnswer(r.fra, clientCall{key: "key-" + tenant, body: askBody})
				if resp.StatusCode != 200 && resp.StatusCode != 503 { // 503: sent before the change had arrived
					t.Fatalf("got %d %s", resp.StatusCode, text)
				}
				return readCounter(t, r.fraReg, "spills_held_total", "iad", tc.why) > 0
			})
		})
	}
}

// A peer that has spent the request's single retry reports it, and no tier tries again.
func TestRetryIsSpentOnceAcrossTiers(t *testing.T) {
	for _, left := range []int{0, 1, 2} { // 2: a client's own request, sent directly
		r := newPeerRegions(t, nil)
		l := r.startLocal(r.iad, "iad", "iad-a", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, roomyModel("small"), roomyModel("large"))
		r.waitForWorkerTotal("iad", 2)
		r.testWorld.waitUntilServed(r.iad, "large") // no peer has this model
		var resp *http.Response
		if left == 2 {
			resp, _ = r.getAnswer(r.fra, clientCall{key: "key-acme", body: askBody})
		} else {
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: r.issueCerts(gatewayID("fra")).ClientTLS(forward.ALPN, nil), DisableKeepAlives: true}}
			req, err := http.NewRequest("POST", "https://"+r.iad.PeerAddr().String()+"/v1/chat/completions", strings.NewReader(askBody))
			requireNoError(t, err)
			(&forward.Hop{Tenant: "acme", Model: "small", Class: spec.Standard, Hops: 1, PromptTokens: 9, RetriesLeft: left}).SetHeaders(req.Header)
			resp, err = client.Do(req)
			requireNoError(t, err)
			_ = resp.Body.Close()
			if got := resp.Header.Get(forward.HeaderRetriesLeft); got != "0" {
				t.Errorf("of %d retries %q are left", left, got)
			}
		}
		if n := len(l.requests); n != 1 || resp.StatusCode < 500 {
			t.Errorf("%d: the zone was asked %d times, and the answer is %d", left, n, resp.StatusCode)
		}
	}
}
