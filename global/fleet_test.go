package global

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/geo/geofiles"
	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/uplink"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testService = "chat.api.example."
	testAPIKey  = "sk-test-0123456789abcdef"
	testEUKey   = "sk-test-eu-0123456789abcdef"
)

// clientAddrs are addresses of three demo cities, each close to one region.
var clientAddrs = map[string]string{"virginia": "192.0.2.7", "frankfurt": "198.51.100.7", "tokyo": "203.0.113.7"}

var testGatewayAddrs = map[string]netip.Addr{
	"virginia": netip.MustParseAddr("127.0.2.1"), "frankfurt": netip.MustParseAddr("127.0.3.1"), "tokyo": netip.MustParseAddr("127.0.4.1"),
}

func testSpecText() string {
	return fmt.Sprintf(`
zone:
  name: api.example.
  nameservers: [{name: ns1.api.example., addresses: [127.0.1.1]}]
services:
  - name: chat.api.example.
regions:
  - {name: virginia, place: {city: Ashburn, lat: 39.04, lon: -77.49}, zones: [a, b], residency: [us], gateways: [{name: gv, addresses: [127.0.2.1], url: "http://127.0.2.1:8080"}]}
  - {name: frankfurt, place: {city: Frankfurt, lat: 50.11, lon: 8.68}, zones: [a, b], residency: [eu], gateways: [{name: gf, addresses: [127.0.3.1], url: "http://127.0.3.1:8080"}]}
  - {name: tokyo, place: {city: Tokyo, lat: 35.68, lon: 139.69}, zones: [a, b], residency: [jp], gateways: [{name: gt, addresses: [127.0.4.1], url: "http://127.0.4.1:8080"}]}
models:
  - name: m1
tenants:
  - {name: acme, keys: [%q]}
  - {name: eurocorp, keys: [%q], residency: [eu]}
steering: {interval: 200ms, ramp: 0s}
`, spec.HashKey(testAPIKey), spec.HashKey(testEUKey))
}

// testFleet consists of three global nodes and scripted gateways.
type testFleet struct {
	t         *testing.T
	ca        *identity.DevCA
	dir       string
	nodes     []*Server
	gateways  map[string]*fakeGateway
	heartbeat time.Duration // of Raft, at least
	configure func(*Config) // changes each node's configuration; nil: nothing
}

// testHeartbeat is short, so that elections are, and longer on a machine that is too busy for it.
func testHeartbeat() time.Duration {
	load := 0.0
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &load) // 0 if there is none
	}
	return time.Duration(min(max(1, load/float64(2*runtime.NumCPU())), 7) * float64(150*time.Millisecond))
}

// fakeGateway is a gateway that reports what the test sets.
type fakeGateway struct {
	name      string
	links     map[string]*datagramRelay // by global node
	frozen    chan struct{}             // closed to resume sending; nil: never frozen
	mu        sync.Mutex
	child     *uplink.Child
	summary   atomic.Pointer[capacity.Summary]
	directive atomic.Pointer[uplink.Directive]
	muted     atomic.Bool
	idle      atomic.Bool // no request is in flight
}

func newTestFleet(t *testing.T) *testFleet {
	t.Helper()
	return newTestFleetFor(t, testSpecText())
}

func newTestFleetFor(t *testing.T, text string) *testFleet {
	t.Helper()
	return newTestFleetWith(t, text, nil)
}

func newTestFleetWith(t *testing.T, text string, tune func(*Config)) *testFleet {
	t.Helper()
	p := &testFleet{t: t, dir: t.TempDir(), gateways: map[string]*fakeGateway{}, configure: tune}
	var err error
	if p.ca, err = identity.NewDevCA(p.dir, "test.example"); err != nil {
		t.Fatal(err)
	}
	var peers []consensus.RaftPeer
	for i := range 3 {
		s := p.newNodeIn(fmt.Sprintf("g%d", i+1), "127.0.0.1:0", "", text)
		p.nodes = append(p.nodes, s)
		peers = append(peers, consensus.RaftPeer{ID: s.cfg.Name, Addr: s.RaftAddr().String()})
	}
	for _, s := range p.nodes {
		s.SetPeers(peers)
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		var wg sync.WaitGroup
		for _, s := range p.nodes {
			wg.Go(func() { p.stopNode(s) })
		}
		wg.Wait()
	})
	for region, gw := range map[string]string{"virginia": "gv", "frankfurt": "gf", "tokyo": "gt"} {
		p.gateways[region] = p.newFakeGateway(region, gw)
	}
	return p
}

func (p *testFleet) issueCerts(id identity.ID) *identity.Certs {
	p.t.Helper()
	id.TrustDomain = "test.example"
	f, err := p.ca.IssueCert(id, p.dir, time.Hour)
	if err != nil {
		p.t.Fatal(err)
	}
	c, err := identity.LoadCerts(f, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// newNodeIn makes a node that keeps its state in dir and has a spec file with this text.
func (p *testFleet) newNodeIn(name, raft, dir, text string) *Server {
	p.t.Helper()
	atlas, err := geofiles.NewLiveAtlas(geo.Config{Demo: true})
	if err != nil {
		p.t.Fatal(err)
	}
	return p.newNodeOn(name, raft, dir, text, atlas)
}

func (p *testFleet) newNodeOn(name, raft, dir, text string, atlas *geofiles.LiveAtlas) *Server {
	p.t.Helper()
	cfg := Config{
		Name: name, Dir: dir, Certs: p.issueCerts(identity.ID{Role: identity.RoleGlobal, Name: name}), RaftListen: raft,
		Heartbeat: max(p.heartbeat, testHeartbeat()), DNSListen: []string{"127.0.0.1:0"}, DNS: dns.Config{Explain: true, TLSListen: []string{"127.0.0.1:0"}}, HTTPListen: "127.0.0.1:0",
		UplinkListen: "127.0.0.1:0", AdminSocket: filepath.Join(p.dir, name+".sock"), MetricsListen: "127.0.0.1:0", Atlas: atlas,
		SpecName: "spec.yaml", Spec: []byte(text), Version: "test",
	}
	if p.configure != nil {
		p.configure(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// stopNode stops a node once; further calls do nothing.
func (p *testFleet) stopNode(s *Server) {
	if s.cancel == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		p.t.Logf("stopping %s: %v", s.cfg.Name, err)
	}
	s.cancel = nil
}

func (p *testFleet) liveNodes() (out []*Server) {
	for _, s := range p.nodes {
		if s.cancel != nil {
			out = append(out, s)
		}
	}
	return out
}

func (p *testFleet) newFakeGateway(region, name string) *fakeGateway {
	p.t.Helper()
	g := &fakeGateway{name: name, links: map[string]*datagramRelay{}}
	g.summary.Store(summaryWithCapacity(10000, 8))
	var parents []string
	for _, s := range p.nodes {
		g.links[s.cfg.Name] = newDatagramRelay(p.t, s.UplinkAddr().String())
		parents = append(parents, g.links[s.cfg.Name].listenAddr())
	}
	var err error
	g.child, err = uplink.NewChild(uplink.ChildConfig{
		Certs:   p.issueCerts(identity.ID{Role: identity.RoleGateway, Region: region, Name: name}),
		Parents: parents, ParentRole: identity.RoleGlobal, Endpoint: "127.0.0.1:9", Interval: 50 * time.Millisecond,
		BuildSummary: func(time.Time) capacity.Summary {
			g.awaitUnfrozen()
			return *g.summary.Load()
		},
		OnDirective: func(_ identity.ID, d *uplink.Directive) {
			if old := g.directive.Load(); old == nil || old.Index <= d.Index {
				g.directive.Store(d)
			}
		},
		OnQuery: func(ctx context.Context, kind string, payload []byte) ([]byte, error) {
			return g.answerAsk(ctx, region, kind, payload)
		},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := g.child.Start(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { g.stopChild() })
	return g
}

func (g *fakeGateway) answerAsk(ctx context.Context, region, kind string, payload []byte) ([]byte, error) {
	if g.muted.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if kind == admin.QueryStatus {
		inFlight := int64(7)
		if g.idle.Load() {
			inFlight = 0
		}
		return json.Marshal(admin.RegionStatus{
			Name: region, Models: []admin.ModelStatus{{Name: "m1", Ready: 8}},
			Zones: []admin.ZoneStatus{{
				Name: "a", Instance: "l1", State: admin.StateFresh, Workers: []admin.WorkerStatus{{Name: "w1"}, {Name: "w2"}},
			}},
			Gateways: []admin.GatewayStatus{{Name: g.name, InFlight: inFlight}},
		})
	}
	var q admin.ExplainQuery
	if err := json.Unmarshal(payload, &q); err != nil {
		return nil, err
	}
	return json.Marshal([]explain.Explanation{{Tier: "regional", Node: region, Query: q.Model}, {Tier: "local", Node: "a"}})
}

func (g *fakeGateway) stopChild() {
	if g.child == nil {
		return
	}
	g.resumeSending()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	g.child.Stop(ctx)
	g.child = nil
}

// summaryWithCapacity is a region with so many tokens/s on so many workers.
func summaryWithCapacity(rate, workers int64) *capacity.Summary {
	return &capacity.Summary{Models: []*capacity.ModelCapacity{{
		Name: "m1", Ready: workers, Total: 8, Hardware: []capacity.HardwareRates{{Name: "h100", Ready: workers, PrefillRate: rate}},
	}}}
}

// testTimeout bounds every wait: only a hang takes longer, on a machine of any load. Durations are tested by package
// timed, and in virtual time by chaos/sim.
const testTimeout = time.Minute

// awaitAllRegions waits until every node knows every region.
func (p *testFleet) awaitAllRegions() {
	p.t.Helper()
	testkit.Eventually(p.t, "every node has a plan and reaches every region", func() bool {
		for _, s := range p.liveNodes() {
			v := s.snapshot.Load()
			if v == nil || v.Plan == nil || len(v.state.TicketKeys) == 0 {
				return false
			}
			for r := range v.Regions {
				if !v.Regions[r].HasReport() || v.Regions[r].Group.State == capacity.Unreachable {
					return false
				}
			}
		}
		return true
	})
}

func (p *testFleet) awaitLeader() *Server {
	p.t.Helper()
	var out *Server
	testkit.Eventually(p.t, "there is a leader", func() bool {
		for _, s := range p.liveNodes() {
			if s.IsLeader() {
				out = s
				return true
			}
		}
		return false
	})
	return out
}

// returnLeadership asks for leadership to return to a node that a busy machine deposed. Where it matters which reports
// the leader receives, each poll of a condition calls it.
func (p *testFleet) returnLeadership(to *Server) {
	if !to.IsLeader() {
		_, _ = p.adminClient(to).TransferLeadership(p.t.Context(), admin.LeaderRequest{To: to.cfg.Name})
	}
}

func (p *testFleet) adminClient(s *Server) *admin.Client {
	p.t.Helper()
	c, err := admin.Dial("unix://"+s.Admin().SocketAddr(), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(c.Close)
	return c
}

// lookupDNS queries a node's real socket for A (1) or TXT (16) with the client's /24 as subnet (RFC 7871). It is
// written by hand because only package dns may import the DNS library.
func lookupDNS(s *Server, name string, qtype uint16, client string) (addrs []netip.Addr, texts []string, err error) {
	c, err := net.Dial("udp", s.DNSAddrs()[0].String())
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testTimeout / 3))
	if _, err := c.Write(buildQuestion(name, qtype, client)); err != nil {
		return nil, nil, err
	}
	b := make([]byte, 4096)
	n, err := c.Read(b)
	if err != nil {
		return nil, nil, err
	}
	return parseAnswer(b[:n])
}

func buildQuestion(name string, qtype uint16, client string) []byte {
	b := []byte{0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1}
	for _, label := range strings.Split(strings.TrimSuffix(name, "."), ".") {
		b = append(append(b, byte(len(label))), label...)
	}
	b = append(b, 0)
	b = binary.BigEndian.AppendUint16(b, qtype)
	b = append(b, 0, 1)
	a := netip.MustParseAddr(client).As4()
	b = append(b, 0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0) // OPT, 1232 bytes
	return append(b, 0, 11, 0, 8, 0, 7, 0, 1, 24, 0, a[0], a[1], a[2])
}

func parseAnswer(b []byte) (addrs []netip.Addr, texts []string, err error) {
	bad := errors.New("answer is malformed")
	if len(b) < 12 {
		return nil, nil, bad
	}
	if rcode := b[3] & 15; rcode != 0 {
		return nil, nil, errors.New("rcode " + string('0'+rcode))
	}
	at := skipName(b, 12) + 4
	for range binary.BigEndian.Uint16(b[6:]) {
		at = skipName(b, at)
		if at+10 > len(b) {
			return nil, nil, bad
		}
		kind, size := binary.BigEndian.Uint16(b[at:]), int(binary.BigEndian.Uint16(b[at+8:]))
		data := b[at+10 : at+10+size]
		at += 10 + size
		switch kind {
		case 1:
			addrs = append(addrs, netip.AddrFrom4([4]byte(data)))
		case 16:
			for len(data) > 0 {
				texts, data = append(texts, string(data[1:1+data[0]])), data[1+data[0]:]
			}
		}
	}
	return addrs, texts, nil
}

func skipName(b []byte, at int) int {
	for at < len(b) && b[at] != 0 {
		if b[at] >= 0xc0 {
			return at + 2
		}
		at += int(b[at]) + 1
	}
	return at + 1
}

// answeredRegion returns the region whose gateway the node answers with, or the error.
func answeredRegion(s *Server, client string) string {
	addrs, _, err := lookupDNS(s, testService, 1, client)
	if err != nil {
		return err.Error()
	}
	for name, a := range testGatewayAddrs {
		if len(addrs) == 1 && addrs[0] == a {
			return name
		}
	}
	return "no single gateway"
}

// datagramRelay is the network between one gateway and one global node: a relay of datagrams that can be cut. Both
// ends notice only silence.
type datagramRelay struct {
	gatewayConn *net.UDPConn // the gateway's end
	nodeAddr    *net.UDPAddr
	blocked     atomic.Bool

	mu      sync.Mutex
	sockets map[netip.AddrPort]*net.UDPConn
	done    sync.WaitGroup
}

func newDatagramRelay(t *testing.T, to string) *datagramRelay {
	t.Helper()
	addr, err := net.ResolveUDPAddr("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	l := &datagramRelay{nodeAddr: addr, sockets: map[netip.AddrPort]*net.UDPConn{}}
	if l.gatewayConn, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		t.Fatal(err)
	}
	l.done.Go(l.relayToNode)
	t.Cleanup(l.closeSockets)
	return l
}

func (l *datagramRelay) listenAddr() string { return l.gatewayConn.LocalAddr().String() }

func (l *datagramRelay) relayToNode() {
	b := make([]byte, 64<<10)
	for {
		n, from, err := l.gatewayConn.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		if c := l.socketFor(from); c != nil && !l.blocked.Load() {
			c.Write(b[:n])
		}
	}
}

// socketFor returns the socket that represents one of the gateway's.
func (l *datagramRelay) socketFor(from netip.AddrPort) *net.UDPConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.sockets[from]
	if c == nil {
		var err error
		if c, err = net.DialUDP("udp", nil, l.nodeAddr); err != nil {
			return nil
		}
		l.sockets[from] = c
		l.done.Go(func() { l.relayToGateway(c, from) })
	}
	return c
}

func (l *datagramRelay) relayToGateway(c *net.UDPConn, to netip.AddrPort) {
	b := make([]byte, 64<<10)
	for {
		n, err := c.Read(b)
		if err != nil {
			return
		}
		if !l.blocked.Load() {
			l.gatewayConn.WriteToUDPAddrPort(b[:n], to)
		}
	}
}

func (l *datagramRelay) closeSockets() {
	l.gatewayConn.Close()
	l.mu.Lock()
	for _, c := range l.sockets {
		c.Close()
	}
	l.mu.Unlock()
	l.done.Wait()
}
