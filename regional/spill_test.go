package regional_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
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
