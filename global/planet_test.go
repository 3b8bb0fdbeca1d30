package global

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	service = "chat.api.example."
	apiKey1 = "sk-test-0123456789abcdef"
	euKey   = "sk-test-eu-0123456789abcdef"
)

// clients are addresses of three demo cities, each beside one region.
var clients = map[string]string{"virginia": "192.0.2.7", "frankfurt": "198.51.100.7", "tokyo": "203.0.113.7"}

var gatewayAddr = map[string]netip.Addr{
	"virginia": netip.MustParseAddr("127.0.2.1"), "frankfurt": netip.MustParseAddr("127.0.3.1"), "tokyo": netip.MustParseAddr("127.0.4.1"),
}

func specText() string {
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
`, spec.HashKey(apiKey1), spec.HashKey(euKey))
}

// planet is three global nodes and hand-fed gateways.
type planet struct {
	t     *testing.T
	ca    *identity.DevCA
	dir   string
	nodes []*Server
	gates map[string]*gate
	beat  time.Duration // of Raft, at least
}

// heartbeat is short, so that elections are, and longer on a machine that is too busy to keep to it.
func heartbeat() time.Duration {
	load := 0.0
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &load) // 0 where there is none
	}
	return time.Duration(min(max(1, load/float64(2*runtime.NumCPU())), 7) * float64(150*time.Millisecond))
}

// gate is a gateway that says what it is told to say.
type gate struct {
	name      string
	links     map[string]*link // by global node
	frozen    chan struct{}    // closed to thaw; nil: never frozen
	mu        sync.Mutex
	child     *uplink.Child
	summary   atomic.Pointer[capacity.Summary]
	directive atomic.Pointer[uplink.Directive]
	mute      atomic.Bool
}

func newPlanet(t *testing.T) *planet {
	t.Helper()
	return newPlanetOf(t, specText())
}

func newPlanetOf(t *testing.T, text string) *planet {
	t.Helper()
	p := &planet{t: t, dir: t.TempDir(), gates: map[string]*gate{}}
	var err error
	if p.ca, err = identity.NewDevCA(p.dir, "test.example"); err != nil {
		t.Fatal(err)
	}
	var peers []consensus.Peer
	for i := range 3 {
		s := p.newNodeIn(fmt.Sprintf("g%d", i+1), "127.0.0.1:0", "", text)
		p.nodes = append(p.nodes, s)
		peers = append(peers, consensus.Peer{ID: s.cfg.Name, Addr: s.RaftAddr().String()})
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
			wg.Go(func() { p.stop(s) })
		}
		wg.Wait()
	})
	for region, gw := range map[string]string{"virginia": "gv", "frankfurt": "gf", "tokyo": "gt"} {
		p.gates[region] = p.newGate(region, gw)
	}
	return p
}

func (p *planet) certs(id identity.ID) *identity.Certs {
	p.t.Helper()
	id.TrustDomain = "test.example"
	f, err := p.ca.Issue(id, p.dir, time.Hour)
	if err != nil {
		p.t.Fatal(err)
	}
	c, err := identity.Load(f, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// newNodeIn makes a node that keeps its state in dir and has a spec file of this text.
func (p *planet) newNodeIn(name, raft, dir, text string) *Server {
	p.t.Helper()
	atlas, err := geo.NewLive(geo.Config{Demo: true})
	if err != nil {
		p.t.Fatal(err)
	}
	return p.newNodeOn(name, raft, dir, text, atlas)
}

func (p *planet) newNodeOn(name, raft, dir, text string, atlas *geo.Live) *Server {
	p.t.Helper()
	s, err := New(Config{
		Name: name, Dir: dir, Certs: p.certs(identity.ID{Role: identity.RoleGlobal, Name: name}), RaftListen: raft,
		Heartbeat: max(p.beat, heartbeat()), DNSListen: []string{"127.0.0.1:0"}, DNS: dns.Config{Explain: true, TLSListen: []string{"127.0.0.1:0"}}, HTTPListen: "127.0.0.1:0",
		UplinkListen: "127.0.0.1:0", AdminSocket: filepath.Join(p.dir, name+".sock"), MetricsListen: "127.0.0.1:0", Atlas: atlas,
		SpecName: "spec.yaml", Spec: []byte(text), Version: "test",
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// stop ends a node once, however often it is asked to.
func (p *planet) stop(s *Server) {
	if s.cancel == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		p.t.Logf("stopping %s: %v", s.cfg.Name, err)
	}
	s.cancel = nil
}

func (p *planet) alive() (out []*Server) {
	for _, s := range p.nodes {
		if s.cancel != nil {
			out = append(out, s)
		}
	}
	return out
}

func (p *planet) newGate(region, name string) *gate {
	p.t.Helper()
	g := &gate{name: name, links: map[string]*link{}}
	g.summary.Store(capacityOf(10000, 8))
	var parents []string
	for _, s := range p.nodes {
		g.links[s.cfg.Name] = newLink(p.t, s.UplinkAddr().String())
		parents = append(parents, g.links[s.cfg.Name].addr())
	}
	var err error
	g.child, err = uplink.NewChild(uplink.ChildConfig{
		Certs:   p.certs(identity.ID{Role: identity.RoleGateway, Region: region, Name: name}),
		Parents: parents, ParentRole: identity.RoleGlobal, Endpoint: "127.0.0.1:9", Interval: 50 * time.Millisecond,
		Summary: func(time.Time) capacity.Summary {
			g.hold()
			return *g.summary.Load()
		},
		OnDirective: func(_ identity.ID, d *uplink.Directive) {
			if old := g.directive.Load(); old == nil || old.Index <= d.Index {
				g.directive.Store(d)
			}
		},
		OnAsk: func(ctx context.Context, kind string, payload []byte) ([]byte, error) {
			return g.ask(ctx, region, kind, payload)
		},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := g.child.Start(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { g.stop() })
	return g
}

func (g *gate) ask(ctx context.Context, region, kind string, payload []byte) ([]byte, error) {
	if g.mute.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if kind == admin.AskStatus {
		return json.Marshal(admin.RegionStatus{
			Name: region, Models: []admin.ModelStatus{{Name: "m1", Ready: 8}},
			Zones: []admin.ZoneStatus{{
				Name: "a", Instance: "l1", State: admin.StateFresh, Workers: []admin.WorkerStatus{{Name: "w1"}, {Name: "w2"}},
			}},
			Gateways: []admin.GatewayStatus{{Name: g.name, InFlight: 7}},
		})
	}
	var q admin.ExplainQuery
	if err := json.Unmarshal(payload, &q); err != nil {
		return nil, err
	}
	return json.Marshal([]explain.Record{{Tier: "regional", Node: region, Query: q.Model}, {Tier: "local", Node: "a"}})
}

func (g *gate) stop() {
	if g.child == nil {
		return
	}
	g.thaw()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	g.child.Stop(ctx)
	g.child = nil
}

// capacityOf is a region with so many tokens/s on so many workers.
func capacityOf(rate, workers int64) *capacity.Summary {
	return &capacity.Summary{Models: []capacity.Model{{
		Name: "m1", Ready: workers, Total: 8, Hardware: []capacity.Hardware{{Name: "h100", Ready: workers, PrefillRate: rate}},
	}}}
}

// eventually polls, because the planet is real and its parts meet in their own time.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	begun := time.Now()
	for !ok() {
		if time.Since(begun) > within {
			t.Fatalf("after %s still not: %s", within, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(begun)
}

// settle waits until every node knows every region.
func (p *planet) settle() {
	p.t.Helper()
	eventually(p.t, 10*time.Second, "every node has a plan and hears every region", func() bool {
		for _, s := range p.alive() {
			v := s.view.Load()
			if v == nil || v.plan == nil || len(v.state.TicketKeys) == 0 {
				return false
			}
			for r := range v.regions {
				if !v.regions[r].heard || v.regions[r].group.State == capacity.Lost {
					return false
				}
			}
		}
		return true
	})
}

func (p *planet) leader() *Server {
	p.t.Helper()
	var out *Server
	eventually(p.t, 5*time.Second, "somebody leads", func() bool {
		for _, s := range p.alive() {
			if s.IsLeader() {
				out = s
				return true
			}
		}
		return false
	})
	return out
}

func (p *planet) admin(s *Server) *admin.Client {
	p.t.Helper()
	c, err := admin.Dial("unix://"+s.Admin().SocketAddr(), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(c.Close)
	return c
}
