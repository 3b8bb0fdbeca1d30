package uplink

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/uplink/uplinkpb"
)

// A malformed peer is left out of a directive; the policy and the other peers still reach the child.
func TestDirectiveWithoutMalformedPeers(t *testing.T) {
	for name, spoil := range map[string]func(*Directive){
		"name":     func(d *Directive) { d.Peers[0].Region = "" },
		"age":      func(d *Directive) { d.Peers[0].Age = -1 },
		"endpoint": func(d *Directive) { d.Peers[0].Gateways[0].Endpoint = strings.Repeat("x", capacity.MaxName+1) },
	} {
		d := fullDirective()
		spoil(d)
		b, left, err := encodeDirective(1, 0, d)
		if err != nil || left[omitPeers] != 1 {
			t.Errorf("%s: %v %v", name, left, err)
			continue
		}
		if _, _, got, err := decodeDirective(b); err != nil || len(got.Peers) != 1 || got.Peers[0].Region != "ap" || !bytes.Equal(got.Spec, d.Spec) {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
	d := fullDirective()
	d.Peers[0].Gateways = make([]PeerGateway, maxGateways+1)
	b, _, err := encodeDirective(1, 0, d)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, got, err := decodeDirective(b); err != nil || len(got.Peers[0].Gateways) != maxGateways {
		t.Errorf("%v", err)
	}
	d = fullDirective()
	for i := range maxPeers + 1 {
		d.Peers = append(d.Peers, PeerRegion{Region: fmt.Sprint("r", i)})
	}
	if b, left, err := encodeDirective(1, 0, d); err != nil || left[omitPeers] != 3 {
		t.Errorf("%v %v", left, err)
	} else if _, _, got, err := decodeDirective(b); err != nil || len(got.Peers) != maxPeers {
		t.Errorf("%v", err)
	}
}

// The decoder refuses what encodeDirective never writes.
func TestDecodeRefusesMalformedPeers(t *testing.T) {
	for name, p := range map[string]*uplinkpb.Directive{
		"peers":    {Peers: make([]*uplinkpb.Peer, maxPeers+1)},
		"name":     {Peers: []*uplinkpb.Peer{{}}},
		"age":      {Peers: []*uplinkpb.Peer{{Region: "eu", AgeNano: -1}}},
		"gateways": {Peers: []*uplinkpb.Peer{{Region: "eu", Gateways: gatewaysToPB(make([]PeerGateway, maxGateways+1))}}},
	} {
		for i := range p.Peers {
			if p.Peers[i] == nil {
				p.Peers[i] = &uplinkpb.Peer{Region: fmt.Sprint("r", i)}
			}
		}
		b, err := proto.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := decodeDirective(b); err == nil {
			t.Errorf("%s: decoded", name)
		}
	}
}

// oversizedDirective is a directive of 255 peers with 50 models each, and a spec of the given number of bytes.
func oversizedDirective(specBytes int) *Directive {
	d := &Directive{Index: 3, Spec: bytes.Repeat([]byte{'#'}, specBytes), Drains: []ActiveDrain{{Path: "eu", Reason: "upgrade"}}, TicketKeys: [][]byte{make([]byte, 32)}}
	for r := range 255 {
		s := &capacity.Summary{Path: capacity.Path{Region: fmt.Sprintf("region-%03d", r)}}
		for m := range 50 {
			model := &capacity.ModelCapacity{
				Name: fmt.Sprintf("org/model-%02d-70b-instruct", m), Ready: 30, Total: 40, KVTotal: 1 << 30, KVFree: 1 << 29, Running: 100, Queued: 3,
				Hardware: []capacity.HardwareRates{{Name: "H100", Ready: 30, PrefillRate: 30_000, DecodeRate: 2_000}},
			}
			for i := range capacity.MaxPrefixes {
				model.Prefixes = append(model.Prefixes, capacity.PrefixEntry{Hash: uint64(i)<<40 | 1<<60 | 7, Tokens: int64(100_000 - i)})
			}
			s.Models = append(s.Models, model)
		}
		d.Peers = append(d.Peers, PeerRegion{Region: s.Path.Region, Summary: s, RTT: time.Duration(r) * time.Millisecond, Gateways: []PeerGateway{{"gw1", "10.0.0.1:7400"}}})
	}
	return d
}

// A spec of 3 MiB with 255 regions of 50 models each is sent: without prefixes and the farthest peers.
func TestDirectiveOfAllSizesIsSent(t *testing.T) {
	for _, size := range []int{0, 1 << 20, 3 << 20} {
		d := oversizedDirective(size)
		b, left, err := encodeDirective(1, 0, d)
		if err != nil || len(b) > maxDirectiveBytes {
			t.Fatalf("%d: %d bytes, %v", size, len(b), err)
		}
		_, _, got, err := decodeDirective(b)
		if err != nil || !bytes.Equal(got.Spec, d.Spec) || len(got.Drains) != 1 || len(got.TicketKeys) != 1 {
			t.Fatalf("%d: the policy is not whole: %v", size, err)
		}
		if left[omitPrefixes] != 1 || len(got.Peers)+left[omitPeers] != 255 || len(got.Peers) < 64 || left[omitDrainReasons] != 0 {
			t.Errorf("%d: %d peers, omitted %v", size, len(got.Peers), left)
		}
		for i, p := range got.Peers {
			if p.Region != d.Peers[i].Region || len(p.Summary.Models) != 50 {
				t.Fatalf("%d: peer %d is %s with %d models: the nearest stay whole", size, i, p.Region, len(p.Summary.Models))
			}
		}
	}
}

// A region that inflates its summary is dropped before any other.
func TestLargestPeerIsOmittedFirst(t *testing.T) {
	d := oversizedDirective(3<<20 + 300<<10)
	for i := range 3000 {
		d.Peers[0].Summary.Demand = append(d.Peers[0].Summary.Demand, capacity.CellDemand{Service: fmt.Sprintf("s%05d", i), Cell: "x"})
	}
	d.Peers[0].Summary.Demand = d.Peers[0].Summary.Demand[:capacity.MaxDemand]
	b, left, err := encodeDirective(1, 0, d)
	if err != nil {
		t.Fatal(err)
	}
	_, _, got, err := decodeDirective(b)
	if err != nil || left[omitPeers] == 0 || got.Peers[0].Region != d.Peers[1].Region {
		t.Errorf("%v %v, first peer %s", err, left, got.Peers[0].Region)
	}
}

// The reasons of drains are dropped when the policy alone is too large; a policy that is too large without them is an
// error.
func TestDrainReasonsAreOmittedLast(t *testing.T) {
	d := &Directive{Spec: make([]byte, 3<<20)}
	for i := range maxDrains {
		d.Drains = append(d.Drains, ActiveDrain{Path: fmt.Sprintf("eu/a/worker-%04d", i), Reason: strings.Repeat("x", maxTextBytes)})
	}
	b, left, err := encodeDirective(1, 0, d)
	if err != nil || left[omitDrainReasons] != maxDrains {
		t.Fatal(left, err)
	}
	if _, _, got, err := decodeDirective(b); err != nil || len(got.Drains) != maxDrains {
		t.Fatal(err)
	}
}

// A directive whose policy is too large is counted and logged once a minute; the next one that fits is sent.
func TestUnsentDirectiveIsCountedAndLogged(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		var small atomic.Bool
		g := w.startParent(1, w.attachHost(1), func(c *ParentConfig) {
			c.BuildDirective = func(capacity.Path) *Directive {
				if small.Load() {
					return &Directive{Index: 2, Spec: []byte("x"), Peers: []PeerRegion{{Region: ""}}}
				}
				return &Directive{Index: 1, Spec: make([]byte, maxDirectiveBytes+1)}
			}
		})
		var got atomic.Uint64
		c := w.startChild(w.newChild(2, func(c *ChildConfig) {
			c.OnDirective = func(_ identity.ID, d *Directive) { got.Store(d.Index) }
		}, 1))
		time.Sleep(30 * time.Second)
		if n := g.unsentDirectives.Load(); n < 5 || w.log.countLines("directive cannot be sent") != 1 {
			t.Errorf("%d counted, %d lines", n, w.log.countLines("directive cannot be sent"))
		}
		small.Store(true)
		g.PushDirectives()
		time.Sleep(time.Second)
		if got.Load() != 2 || g.omittedParts[omitPeers].Load() == 0 || w.log.countLines("directive truncated") != 1 {
			t.Errorf("directive %d, %d peers omitted", got.Load(), g.omittedParts[omitPeers].Load())
		}
		reg := prometheus.NewRegistry()
		reg.MustRegister(NewCollector(g.Parent, nil))
		if n, err := testutil.GatherAndCount(reg, "spillway_uplink_directives_unsent_total", "spillway_uplink_directives_omitted_total"); n != 4 || err != nil {
			t.Errorf("%d series, %v", n, err)
		}
		w.stopAll(c, g)
	})
}

// For any peers, the result is at most maxDirectiveBytes bytes, decodes and contains the policy.
func TestFittedDirectiveStaysWithinLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := oversizedDirective(rapid.IntRange(2<<20, maxDirectiveBytes-1<<10).Draw(t, "spec"))
		d.Peers = d.Peers[:rapid.IntRange(0, 80).Draw(t, "peers")]
		for i := range d.Peers {
			n := rapid.IntRange(0, 50).Draw(t, "models")
			d.Peers[i].Summary.Models = d.Peers[i].Summary.Models[:n]
		}
		b, left, err := encodeDirective(1, 0, d)
		if err != nil || len(b) > maxDirectiveBytes {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		_, _, got, err := decodeDirective(b)
		if err != nil || !bytes.Equal(got.Spec, d.Spec) || len(got.Peers)+left[omitPeers] != len(d.Peers) {
			t.Fatalf("%v %v", left, err)
		}
		if free := maxDirectiveBytes - len(b); left[omitPeers] > 0 && free > 64<<10 {
			t.Fatalf("%d peers were left out with %d bytes free", left[omitPeers], free)
		}
	})
}
