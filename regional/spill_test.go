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
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional"
)

// wire carries TCP between two gateways and counts what the caller sends.
type wire struct {
	listener net.Listener
	sent     atomic.Int64
}

func newWire(t *testing.T, far net.Addr) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w := &wire{listener: l}
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
			all.Go(func() { w.carry(up, near, &w.sent) })
			all.Go(func() { w.carry(near, up, new(atomic.Int64)) })
			all.Go(func() { <-over; _, _ = near.Close(), up.Close() })
		}
	})
	t.Cleanup(func() { _ = l.Close(); close(over); all.Wait() })
	return w
}

func (w *wire) carry(to, from net.Conn, count *atomic.Int64) {
	for buf := make([]byte, 32<<10); ; {
		n, err := from.Read(buf)
		count.Add(int64(n))
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			_, _ = to.Close(), from.Close()
			return
		}
	}
}

// regions is two real gateways that believe each other to have room, with the wire from fra to iad.
type regions struct {
	*world
	fra, iad       *regional.Gateway
	fraReg, iadReg *prometheus.Registry
	wire           *wire
}

func newRegions(t *testing.T, iad func(*regional.Config)) *regions {
	t.Helper()
	r := &regions{world: newWorld(t), fraReg: prometheus.NewRegistry(), iadReg: prometheus.NewRegistry()}
	r.iad = r.gateway("iad", func(c *regional.Config) {
		c.Registry = r.iadReg
		if iad != nil {
			iad(c)
		}
	})
	r.fra = r.gateway("fra", func(c *regional.Config) { c.Registry = r.fraReg })
	r.wire = newWire(t, r.iad.PeerAddr())
	room := capacity.Summary{Models: []capacity.Model{small("small")}}
	r.change(func(d *uplink.Directive) {
		d.Peers = []uplink.Peer{
			{Region: "fra", Gateways: []uplink.PeerGateway{{Name: "fra-gw", Endpoint: r.fra.PeerAddr().String()}}, Summary: &room, RTT: 90 * time.Millisecond},
			{Region: "iad", Gateways: []uplink.PeerGateway{{Name: "iad-gw", Endpoint: r.wire.listener.Addr().String()}}, Summary: &room, RTT: 90 * time.Millisecond},
		}
	})
	r.served(r.fra, "small")
	return r
}

// admissions are the outcomes of tenants' requests as a gateway has counted them.
func admissions(t *testing.T, reg *prometheus.Registry) string {
	t.Helper()
	families, err := reg.Gather()
	must(t, err)
	var out []string
	for _, f := range families {
		if f.GetName() != "spillway_regional_admissions_total" {
			continue
		}
		for _, m := range f.Metric {
			if m.Label[1].GetValue() == "" {
				continue // answered before anybody was known
			}
			out = append(out, fmt.Sprintf("%s:%s=%v", m.Label[1].GetValue(), m.Label[0].GetValue(), m.Counter.GetValue()))
		}
	}
	return strings.Join(out, " ")
}

// large is a body that is asked about before it is sent.
func large() string { return strings.Replace(ask, "secret", strings.Repeat("word ", 5000), 1) }

func TestSpillHappensWhenTheRegionHasNoRoom(t *testing.T) {
	r := newRegions(t, nil)
	served := make(chan http.Header, 16)
	r.local(r.iad, "iad", "iad-a", func(rw http.ResponseWriter, q *http.Request) { served <- q.Header; reply(rw, q) }, small("small"))
	r.tally("iad", 2)
	r.world.served(r.iad, "small")
	home := small("small")
	l := r.local(r.fra, "fra", "fra-a", reply, home)
	r.tally("fra", 2)
	r.world.served(r.fra, "small")
	if resp, _ := r.ask(r.fra, call{key: "key-acme", body: ask}); resp.StatusCode != 200 || len(l.hits) != 1 || len(served) != 0 {
		t.Fatalf("with room at home it got %d, %d at home and %d away", resp.StatusCode, len(l.hits), len(served))
	}
	l.mu.Lock()
	home.Ready = 0
	l.summary.Models = []capacity.Model{home}
	l.mu.Unlock()
	eventually(t, "home has no worker", func() bool {
		s := r.heard(capacity.Path{Region: "fra", Instance: "fra-gw"})
		return s != nil && s.Model("small") != nil && s.Model("small").Ready == 0
	})
	for _, body := range []string{ask, large()} {
		resp, text := r.ask(r.fra, call{key: "key-acme", body: body})
		if resp.StatusCode != 200 || !strings.Contains(text, "hi") {
			t.Fatalf("got %d %s", resp.StatusCode, text)
		}
		if h := <-served; h.Get(relay.HeaderHop) != "1" || h.Get(relay.HeaderTenant) != "acme" || h.Get("Authorization") != "" {
			t.Errorf("below the peer it came with %v", h)
		}
	}
	want := "# HELP spillway_regional_spills_total Requests that went to a peer region, by region and reason.\n# TYPE spillway_regional_spills_total counter\nspillway_regional_spills_total{reason=\"no_local_capacity\",to=\"iad\"} 2\n"
	eventually(t, "both spills are counted", func() bool {
		return testutil.GatherAndCompare(r.fraReg, strings.NewReader(want), "spillway_regional_spills_total") == nil
	})
	if len(l.hits) != 1 {
		t.Errorf("home was asked %d times", len(l.hits))
	}
	eventually(t, "the round trip to the peer is reported", func() bool {
		s := r.heard(capacity.Path{Region: "fra", Instance: "fra-gw"})
		for i := range s.RTTs {
			if region, ok := s.RTTs[i].Region(); ok && region == "iad" && s.RTTs[i].Samples > 0 && s.RTTs[i].Micros() > 0 {
				return true
			}
		}
		return false
	})
}

// Both regions are full and each believes that the other has room: a request must not go round.
func TestSpilledRequestGoesNoFurther(t *testing.T) {
	r := newRegions(t, nil)
	r.world.served(r.iad, "small") // by what it believes of fra
	resp, text := r.ask(r.fra, call{key: "key-acme", body: large()})
	if resp.StatusCode != 503 || code(text) != openai.CodeNoCapacity || resp.Header.Get("Retry-After") == "" || resp.Header.Get(relay.HeaderNotStarted) != "" {
		t.Fatalf("got %d %s %v", resp.StatusCode, text, resp.Header)
	}
	if got := admissions(t, r.iadReg); got != "acme:no_capacity=1" {
		t.Errorf("the peer counted %q, want one refusal", got)
	}
	if got := admissions(t, r.fraReg); got != "acme:admitted=1" {
		t.Errorf("home counted %q, want the client's request alone", got)
	}
	if n := r.wire.sent.Load(); n > 16<<10 {
		t.Errorf("%d bytes were sent for a refusal, the body must stay at home", n)
	}
}

// The two gateways know different specs, as in the moment after a change: the receiver's residency holds.
func TestReceiverHoldsResidencyToo(t *testing.T) {
	strict, err := spec.Decode("strict", []byte(strings.Replace(worldSpec(), "  - name: europe", "    residency: [eu]\n  - name: europe", 1)))
	must(t, err)
	r := newRegions(t, func(c *regional.Config) { c.Globals, c.Spec = nil, strict })
	l := r.local(r.iad, "iad", "iad-a", reply, small("small"))
	eventually(t, "the peer serves", func() bool {
		resp, _ := r.ask(r.iad, call{key: "key-urgent", body: ask})
		return resp.StatusCode == 200
	})
	before := len(l.hits)
	for _, body := range []string{ask, large()} {
		resp, text := r.ask(r.fra, call{key: "key-acme", body: body})
		if resp.StatusCode != 503 || code(text) != openai.CodeNoCapacity {
			t.Errorf("got %d %s, want 503: where it may be served nothing has room", resp.StatusCode, text)
		}
	}
	if n := len(l.hits) - before; n != 0 {
		t.Errorf("%d requests of a tenant of eu were served in iad", n)
	}
	if got := admissions(t, r.iadReg); !strings.Contains(got, "acme:residency=2") {
		t.Errorf("the peer counted %q", got)
	}
	if n := r.wire.sent.Load(); n > 16<<10 {
		t.Errorf("%d bytes were sent, the large body among them", n)
	}
}

// TestFencedPromptsStayInTheirRegion: a prompt of a tenant with a fence does not leave the region for a peer outside it, by
// bytes on the wire, whatever its size and whether or not the region itself has room. One of a tenant without does.
func TestFencedPromptsStayInTheirRegion(t *testing.T) {
	for name, fence := range map[string]string{"regions": "regions: [fra]", "residency": "residency: [eu]", "both": "regions: [fra, iad]\n    residency: [eu]"} {
		t.Run(name, func(t *testing.T) {
			r := newRegions(t, nil)
			r.change(func(d *uplink.Directive) {
				d.SpecVersion++
				d.Spec = []byte(strings.Replace(string(d.Spec), "    residency: [eu]\n  - name: america", "    "+fence+"\n  - name: america", 1))
			})
			away := r.local(r.iad, "iad", "iad-a", reply, small("small"))
			r.tally("iad", 2)
			r.world.served(r.iad, "small")
			busy := small("small")
			for _, room := range []bool{false, true} { // first there is none at all at home, then some after a while
				if room {
					busy.Ahead = [3]int64{400_000, 400_000, 400_000}
					r.local(r.fra, "fra", "fra-a", reply, busy)
					r.tally("fra", 2)
				}
				for _, size := range []int{9_000, 24_000} { // the larger is asked about before it is sent
					body := strings.Replace(ask, "secret", strings.Repeat("x", size), 1)
					before, asked := r.wire.sent.Load(), admissions(t, r.iadReg)
					resp, text := r.ask(r.fra, call{key: "key-europe", body: body})
					if !room && resp.StatusCode != 503 || resp.StatusCode == 200 && !room {
						t.Errorf("room %v, %d bytes: got %d %s", room, size, resp.StatusCode, text)
					}
					if n := r.wire.sent.Load() - before; n > int64(size)/2 {
						t.Errorf("room %v: of a prompt of %d bytes %d crossed the wire", room, size, n)
					}
					if got := admissions(t, r.iadReg); got != asked {
						t.Errorf("room %v, %d bytes: the peer was asked: %q, before %q", room, size, got, asked)
					}
				}
			}
			if n := len(away.hits); n != 0 {
				t.Errorf("%d requests were served outside the fence", n)
			}
			before := r.wire.sent.Load()
			eventually(t, "a prompt without a fence leaves", func() bool {
				r.ask(r.fra, call{key: "key-acme", body: strings.Replace(ask, "secret", strings.Repeat("x", 9_000), 1)})
				return r.wire.sent.Load()-before > 9_000
			})
		})
	}
}

// The peer's word comes before the body: a refusal without it, an admission as 100 Continue.
func TestPeerAnswersBeforeTheBody(t *testing.T) {
	r := newRegions(t, nil)
	l := r.local(r.iad, "iad", "iad-a", reply, small("small"))
	r.tally("iad", 2)
	r.world.served(r.iad, "small")
	for tenant, want := range map[string]string{"europe": "HTTP/1.1 403 ", "acme": "HTTP/1.1 100 "} {
		conn, err := tls.Dial("tcp", r.iad.PeerAddr().String(), r.certs(gatewayID("fra")).Client(relay.ALPN, nil))
		must(t, err)
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		_, err = fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nExpect: 100-continue\r\n"+
			"Spillway-Tenant: %s\r\nSpillway-Class: standard\r\nSpillway-Model: small\r\nSpillway-Hop: 1\r\nSpillway-Prompt-Tokens: 9\r\n\r\n", len(ask), tenant)
		must(t, err)
		in := bufio.NewReader(conn)
		line, err := in.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, want) {
			t.Fatalf("%s: the first word is %q (%v), want %s", tenant, line, err, want)
		}
		if tenant == "acme" {
			_, _ = in.ReadString('\n')
			_, err = io.WriteString(conn, ask)
			must(t, err)
			resp, err := http.ReadResponse(in, nil)
			must(t, err)
			if _ = resp.Body.Close(); resp.StatusCode != 200 {
				t.Errorf("got %d", resp.StatusCode)
			}
		}
	}
	if len(l.hits) != 1 {
		t.Errorf("%d requests were served, want 1", len(l.hits))
	}
}

// counter reads one counter of a registry.
func counter(t *testing.T, reg *prometheus.Registry, name string, labels ...string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	must(t, err)
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

// A peer that knows better than what was known of it refuses before it does anything, and the request is served at home:
// with a small body, which was sent along, as with a large one, which was not. No retry is spent on that.
func TestARefusedSpillComesHome(t *testing.T) {
	for name, body := range map[string]string{"small": ask, "large": large()} {
		t.Run(name, func(t *testing.T) {
			r := newRegions(t, nil)
			busy, busier := small("small"), small("small")
			busy.Ahead, busier.Ahead = [3]int64{40_000, 40_000, 40_000}, [3]int64{200_000, 200_000, 200_000} // a second, and five
			there := r.local(r.iad, "iad", "iad-a", reply, busier)
			r.tally("iad", 2)
			r.world.served(r.iad, "small")
			home := r.local(r.fra, "fra", "fra-a", reply, busy)
			r.tally("fra", 2)
			r.world.served(r.fra, "small")
			before := r.wire.sent.Load()
			for i := range 2 {
				if resp, text := r.ask(r.fra, call{key: "key-acme", body: body}); resp.StatusCode != 200 || len(home.hits) != i+1 {
					t.Fatalf("got %d %s, %d at home", resp.StatusCode, text, len(home.hits))
				}
			}
			if len(there.hits) != 0 {
				t.Error("the peer served what it had refused")
			}
			refused := counter(t, r.iadReg, "guests_total", "sooner_at_home") // a second one if the pause was over by then
			if n := counter(t, r.fraReg, "spill_refusals_total", "iad"); n < 1 || n != refused {
				t.Errorf("home counts %v refusals, the peer %v", n, refused)
			}
			if held := counter(t, r.fraReg, "spills_held_total", "iad", "refused"); refused+held != 2 {
				t.Errorf("of two requests %v were refused and %v held back", refused, held)
			}
			if n := counter(t, r.fraReg, "retries_total"); n != 0 {
				t.Errorf("%v retries were spent", n)
			}
			if n := r.wire.sent.Load() - before; n > 16<<10 {
				t.Errorf("%d bytes were sent for a refusal", n)
			}
		})
	}
}

// What would be sooner at a peer and stays is counted with its reason.
func TestWhyASpillIsHeldBack(t *testing.T) {
	for _, tc := range []struct {
		why    string
		tenant string
		spec   func(string) string
		peer   func(*uplink.Peer)
	}{
		{why: "residency", tenant: "europe"},
		{why: "off", spec: func(s string) string { return strings.Replace(s, "routing:", "routing:\n  spill: false", 1) }},
		{why: "margin", spec: func(s string) string { return strings.Replace(s, "routing:", "routing:\n  spill_margin: 5s", 1) }},
		{why: "stale", peer: func(p *uplink.Peer) { p.Age = 5 * time.Second }},
		{why: "no_headroom", peer: func(p *uplink.Peer) {
			s := *p.Summary
			s.Models = []capacity.Model{small("small")}
			s.Models[0].Headroom = [3]int64{}
			p.Summary = &s
		}},
	} {
		t.Run(tc.why, func(t *testing.T) {
			r := newRegions(t, nil)
			busy := small("small")
			busy.Ahead = [3]int64{80_000, 80_000, 80_000} // two seconds
			r.local(r.fra, "fra", "fra-a", reply, busy)
			r.tally("fra", 2)
			r.change(func(d *uplink.Directive) {
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
			eventually(t, "held back for "+tc.why, func() bool {
				resp, text := r.ask(r.fra, call{key: "key-" + tenant, body: ask})
				if resp.StatusCode != 200 && resp.StatusCode != 503 { // 503: it went before the change had arrived
					t.Fatalf("got %d %s", resp.StatusCode, text)
				}
				return counter(t, r.fraReg, "spills_held_total", "iad", tc.why) > 0
			})
		})
	}
}

// A peer that has spent the request's one retry says so, and nobody tries again.
func TestTheRetryIsSpentOnceForAllTiers(t *testing.T) {
	for _, left := range []int{0, 1, 2} { // 2: a client's own request, by way of its home
		r := newRegions(t, nil)
		l := r.local(r.iad, "iad", "iad-a", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, small("small"), small("large"))
		r.tally("iad", 2)
		r.world.served(r.iad, "large") // which no peer has
		var resp *http.Response
		if left == 2 {
			resp, _ = r.ask(r.fra, call{key: "key-acme", body: ask})
		} else {
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: r.certs(gatewayID("fra")).Client(relay.ALPN, nil), DisableKeepAlives: true}}
			req, err := http.NewRequest("POST", "https://"+r.iad.PeerAddr().String()+"/v1/chat/completions", strings.NewReader(ask))
			must(t, err)
			(&relay.Hop{Tenant: "acme", Model: "small", Class: spec.Standard, Hops: 1, PromptTokens: 9, RetriesLeft: left}).Set(req.Header)
			resp, err = client.Do(req)
			must(t, err)
			_ = resp.Body.Close()
			if got := resp.Header.Get(relay.HeaderRetriesLeft); got != "0" {
				t.Errorf("of %d retries %q are left", left, got)
			}
		}
		if n := len(l.hits); n != 1 || resp.StatusCode < 500 {
			t.Errorf("%d: the zone was asked %d times, and the answer is %d", left, n, resp.StatusCode)
		}
	}
}
