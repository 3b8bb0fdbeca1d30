package world

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/memnet"
	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global"
	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/regional"
)

// Planet runs. It belongs to one bubble.
type Planet struct {
	Net      *memnet.Net
	Globals  []*global.Server
	Gateways [][]*regional.Gateway    // by region
	Agents   [][]*local.Agent         // by region, zone by zone
	Workers  [][]*gpu.Server          // by region
	Metrics  [][]*prometheus.Registry // of the gateways

	cfg   Config
	ca    *identity.DevCA
	atlas *geo.Live
	parts []part // in starting order
}

// part is what starts and stops.
type part interface {
	Start(context.Context) error
	Stop(context.Context) error
}

// New starts a planet and waits until it answers and every worker is ready.
func New(ctx context.Context, cfg Config) (*Planet, error) {
	cfg.Gateways, cfg.Zones, cfg.Locals = max(cfg.Gateways, 1), max(cfg.Zones, 1), max(cfg.Locals, 1)
	p := &Planet{Net: &memnet.Net{Delay: delay}, cfg: cfg}
	if cfg.Far {
		p.Net.StreamDelay = p.streamDelay
	}
	for _, step := range []func(context.Context) error{p.found, p.work, p.gather, p.steer, p.ready} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, p.Stop(ctx))
		}
	}
	return p, nil
}

// delay is a datagram's: a millisecond inside a region, 40 ms between any two places.
func delay(from, to netip.Addr) time.Duration {
	a, b := from.As4(), to.As4()
	if a[1] != 1 && b[1] != 1 && a[2] == b[2] {
		return time.Millisecond
	}
	return 40 * time.Millisecond
}

// streamDelay is delay, and for clients 2 ms to what is near them.
func (p *Planet) streamDelay(from, to netip.Addr) time.Duration {
	a, b := from.As4(), to.As4()
	for _, x := range [][2][4]byte{{a, b}, {b, a}} {
		if client, host := x[0], x[1]; client[0] >= 20 && int(client[0]) < 20+len(p.cfg.Regions) {
			if host[1] != 1 && host[2] == client[0]-20 {
				return 2 * time.Millisecond
			}
			return 40 * time.Millisecond
		}
	}
	return delay(from, to)
}

// found makes the authority and the map.
func (p *Planet) found(context.Context) (err error) {
	if p.ca, err = identity.NewDevCA(p.cfg.Dir, "spillway.test"); err != nil {
		return err
	}
	places := filepath.Join(p.cfg.Dir, "places.csv")
	if err := os.WriteFile(places, []byte(p.cfg.places()), 0o600); err != nil {
		return err
	}
	p.atlas, err = geo.NewLive(geo.Config{OverridesFile: places})
	return err
}

func (p *Planet) certs(id identity.ID) (*identity.Certs, error) {
	id.TrustDomain = "spillway.test"
	f, err := p.ca.Issue(id, p.cfg.Dir, 1000*time.Hour)
	if err != nil {
		return nil, err
	}
	return identity.Load(f, nil)
}

// start starts a part that was made without an error.
func (p *Planet) start(ctx context.Context, x part, err error) error {
	if err != nil {
		return err
	}
	p.parts = append(p.parts, x)
	return x.Start(ctx)
}

// work starts the workers.
func (p *Planet) work(ctx context.Context) error {
	for r := range p.cfg.Regions {
		var shift []*gpu.Server
		for w := range p.cfg.Regions[r].Workers {
			l, err := p.Net.Listen(workerHost(r, w).String() + ":8000")
			if err != nil {
				return err
			}
			s, err := gpu.New(gpu.Config{Listener: l, GPU: GPU, Model: Model, Seed: p.cfg.Seed<<16 + uint64(r)<<8 + uint64(w)})
			if err := p.start(ctx, s, err); err != nil {
				return err
			}
			shift = append(shift, s)
		}
		p.Workers = append(p.Workers, shift)
	}
	return nil
}

// gather starts the zones and the gateways before them.
func (p *Planet) gather(ctx context.Context) error {
	for r := range p.cfg.Regions {
		if err := p.region(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (p *Planet) region(ctx context.Context, r int) error {
	p.Agents, p.Gateways, p.Metrics = append(p.Agents, nil), append(p.Gateways, nil), append(p.Metrics, nil)
	for z := range p.cfg.Zones {
		for l := range p.cfg.Locals {
			a, err := p.agent(r, z, l)
			if err := p.start(ctx, a, err); err != nil {
				return err
			}
			p.Agents[r] = append(p.Agents[r], a)
		}
	}
	for i := range p.cfg.Gateways {
		g, err := p.gateway(r, i)
		if err := p.start(ctx, g, err); err != nil {
			return err
		}
		p.Gateways[r] = append(p.Gateways[r], g)
	}
	return nil
}

func (p *Planet) agent(r, z, l int) (*local.Agent, error) {
	region, own := p.cfg.Regions[r].Name, LocalHost(r, z, l)
	name := localName(region, z, l)
	certs, err := p.certs(identity.ID{Role: identity.RoleLocal, Region: region, Zone: zoneName(z), Name: name})
	if err != nil {
		return nil, err
	}
	c := local.Config{
		Name: name, Region: region, Zone: zoneName(z), Certs: certs, Network: p.Net.Host(own), Listen: own.String() + ":8443",
		Dir: p.dir(name), Log: p.cfg.Log,
	}
	for g := range p.cfg.Gateways {
		c.Gateways = append(c.Gateways, GatewayHostOf(r, g).String()+":7200")
	}
	for w, s := range p.Workers[r] {
		if w%p.cfg.Zones == z {
			c.Workers = append(c.Workers, discover.Worker{Name: fmt.Sprintf("w%d", w+1), URL: s.URL()})
		}
	}
	return local.New(c)
}

func (p *Planet) gateway(r, i int) (*regional.Gateway, error) {
	region, own := p.cfg.Regions[r].Name, GatewayHostOf(r, i)
	name := gatewayName(region, i)
	certs, err := p.certs(identity.ID{Role: identity.RoleGateway, Region: region, Name: name})
	if err != nil {
		return nil, err
	}
	var globals []string
	for i := range p.cfg.Globals {
		globals = append(globals, GlobalHost(i).String()+":7100")
	}
	registry := telemetry.NewRegistry("regional", name, "world")
	p.Metrics[r] = append(p.Metrics[r], registry)
	return regional.New(regional.Config{
		Registry: registry, Name: name, Region: region, Certs: certs, Network: p.Net.Host(own), Atlas: p.atlas, Dir: p.dir(name),
		HTTPListen: own.String() + ":8080", PeerListen: own.String() + ":8443", UplinkListen: own.String() + ":7200",
		Globals: globals, Log: p.cfg.Log,
	})
}

// steer starts the global nodes.
func (p *Planet) steer(ctx context.Context) error {
	for i := range p.cfg.Globals {
		s, err := p.node(i)
		p.Globals = append(p.Globals, s)
		if err := p.start(ctx, s, err); err != nil {
			return err
		}
	}
	return nil
}

func (p *Planet) node(i int) (*global.Server, error) {
	name, host := fmt.Sprintf("g%d", i+1), GlobalHost(i).String()
	certs, err := p.certs(identity.ID{Role: identity.RoleGlobal, Name: name})
	if err != nil {
		return nil, err
	}
	var peers []consensus.Peer
	for k := range p.cfg.Globals {
		peers = append(peers, consensus.Peer{ID: fmt.Sprintf("g%d", k+1), Addr: GlobalHost(k).String() + ":7000"})
	}
	return global.New(global.Config{
		Name: name, Dir: p.dir(name), Certs: certs, Network: p.Net.Host(GlobalHost(i)), Atlas: p.atlas, Peers: peers,
		RaftListen: host + ":7000", UplinkListen: host + ":7100", HTTPListen: host + ":8080", DNS: dns.Config{Explain: true},
		SpecName: "spec.yaml", Spec: []byte(p.cfg.spec()), Log: p.cfg.Log,
	})
}

func (p *Planet) dir(name string) string {
	if !p.cfg.Keep {
		return ""
	}
	return filepath.Join(p.cfg.Dir, "state-"+name)
}

// ready waits until every region's workers are all there and the first plan is in force.
func (p *Planet) ready(ctx context.Context) error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		if p.settled() {
			return nil
		}
	}
	return errors.Join(errors.New("the planet did not come up within a minute"), ctx.Err())
}

func (p *Planet) settled() bool {
	for i := range p.Globals {
		if v, err := p.Ask(i, Client(0, 0), "_view."+Zone); err != nil || v.Fields["plan_epoch"] == "" || v.Fields["plan_epoch"] == "0" {
			return false
		}
	}
	for r := range p.Agents {
		if p.Ready(r) != int64(p.cfg.Regions[r].Workers) {
			return false
		}
	}
	return true
}

// Ready is how many workers of a region its instances report as ready now, all together.
func (p *Planet) Ready(r int) (ready int64) {
	for _, a := range p.Agents[r] {
		if a == nil {
			continue
		}
		s := a.Summary(time.Now())
		for i := range s.Models {
			ready += s.Models[i].Ready
		}
	}
	return ready
}

// Stop ends everything, the last started first.
func (p *Planet) Stop(context.Context) error {
	var errs []error
	for i := len(p.parts) - 1; i >= 0; i-- {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		errs = append(errs, p.parts[i].Stop(ctx))
		cancel()
	}
	p.parts = nil
	return errors.Join(errs...)
}

// KillLocal takes an instance of a region away, counted zone by zone, as one that is killed: nobody hears its farewell.
func (p *Planet) KillLocal(r, i int) error {
	a := p.Agents[r][i]
	p.Net.Cut(LocalHost(r, i/p.cfg.Locals, i%p.cfg.Locals))
	p.parts = slices.DeleteFunc(p.parts, func(x part) bool { return x == part(a) })
	p.Agents[r][i] = nil
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := a.Stop(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// StartLocal starts an instance anew that was killed.
func (p *Planet) StartLocal(ctx context.Context, r, i int) (err error) {
	z, l := i/p.cfg.Locals, i%p.cfg.Locals
	p.Net.Mend(LocalHost(r, z, l))
	p.Agents[r][i], err = p.agent(r, z, l)
	return p.start(ctx, p.Agents[r][i], err)
}

// CutWorkers takes the last n workers of a region off the network.
func (p *Planet) CutWorkers(r, n int) {
	for w := range n {
		p.Net.Cut(workerHost(r, len(p.Workers[r])-1-w))
	}
}

// MendWorkers puts all of a region's workers back on the network.
func (p *Planet) MendWorkers(r int) {
	for w := range p.Workers[r] {
		p.Net.Mend(workerHost(r, w))
	}
}

// StopGlobal ends a global node. Cut its host first, and it goes as one that is killed: nobody hears its farewell.
func (p *Planet) StopGlobal(i int) error {
	p.parts = slices.DeleteFunc(p.parts, func(x part) bool { return x == part(p.Globals[i]) })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return p.Globals[i].Stop(ctx)
}

// StartGlobal starts a node anew that was stopped, from what it wrote down.
func (p *Planet) StartGlobal(ctx context.Context, i int) (err error) {
	p.Globals[i], err = p.node(i)
	return p.start(ctx, p.Globals[i], err)
}
