package fleet

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
	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/geo/geofiles"
	"github.com/spillway-lb/spillway/global"
	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/regional"
)

// InMemory is a running fleet over a network in memory. It belongs to one bubble.
type InMemory struct {
	Net            *MemoryNetwork
	Globals        []*global.Server
	Gateways       [][]*regional.Gateway    // by region
	Locals         [][]*local.Agent         // by region, then zone
	Workers        [][]*gpu.Server          // by region
	GatewayMetrics [][]*prometheus.Registry // of the gateways

	cfg     InMemoryConfig
	ca      *identity.DevCA
	atlas   *geofiles.LiveAtlas
	started []Runner // in starting order
}

// RunInMemory starts a fleet and waits until it answers and every worker is ready.
func RunInMemory(ctx context.Context, cfg InMemoryConfig) (*InMemory, error) {
	cfg.Globals, cfg.Regions = max(cfg.Globals, 1), max(cfg.Regions, 1)
	cfg.Gateways, cfg.Zones, cfg.Locals = max(cfg.Gateways, 1), max(cfg.Zones, 1), max(cfg.Locals, 1)
	p := &InMemory{Net: &MemoryNetwork{DatagramDelay: datagramDelay}, cfg: cfg}
	if cfg.StreamDelays {
		p.Net.StreamDelay = p.streamDelay
	}
	for _, step := range []func(context.Context) error{p.createAuthorityAndAtlas, p.startWorkers, p.startRegions, p.startGlobals, p.waitReady} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, p.Stop(ctx))
		}
	}
	return p, nil
}

// datagramDelay is 1 ms inside a region and 40 ms between any two locations.
func datagramDelay(from, to netip.Addr) time.Duration {
	a, b := from.As4(), to.As4()
	if a[1] != 1 && b[1] != 1 && a[2] == b[2] {
		return time.Millisecond
	}
	return 40 * time.Millisecond
}

// streamDelay is datagramDelay, and 2 ms between clients and hosts near them.
func (p *InMemory) streamDelay(from, to netip.Addr) time.Duration {
	a, b := from.As4(), to.As4()
	for _, x := range [][2][4]byte{{a, b}, {b, a}} {
		if client, host := x[0], x[1]; client[0] >= 20 && int(client[0]) < 20+p.cfg.Regions {
			if host[1] != 1 && host[2] == client[0]-20 {
				return 2 * time.Millisecond
			}
			return 40 * time.Millisecond
		}
	}
	return datagramDelay(from, to)
}

// createAuthorityAndAtlas creates the certificate authority and the map.
func (p *InMemory) createAuthorityAndAtlas(context.Context) (err error) {
	if p.ca, err = identity.NewDevCA(p.cfg.Dir, "spillway.test"); err != nil {
		return err
	}
	places := filepath.Join(p.cfg.Dir, "places.csv")
	if err := os.WriteFile(places, []byte(p.cfg.geoOverrides()), 0o600); err != nil {
		return err
	}
	p.atlas, err = geofiles.NewLiveAtlas(geo.Config{OverridesFile: places})
	return err
}

func (p *InMemory) issueCerts(id identity.ID) (*identity.Certs, error) {
	id.TrustDomain = "spillway.test"
	f, err := p.ca.IssueCert(id, p.cfg.Dir, 1000*time.Hour)
	if err != nil {
		return nil, err
	}
	return identity.LoadCerts(f, nil)
}

// startComponent starts a part that was created without an error.
func (p *InMemory) startComponent(ctx context.Context, x Runner, err error) error {
	if err != nil {
		return err
	}
	p.started = append(p.started, x)
	return x.Start(ctx)
}

// startWorkers starts the workers.
func (p *InMemory) startWorkers(ctx context.Context) error {
	for r := range p.cfg.Regions {
		var shift []*gpu.Server
		for w := range p.cfg.workersOf(r) {
			l, err := p.Net.Listen(workerHost(r, w).String() + ":8000")
			if err != nil {
				return err
			}
			s, err := gpu.New(gpu.Config{Listener: l, GPU: memoryGPU, Model: memoryModel, Seed: p.cfg.Seed<<16 + uint64(r)<<8 + uint64(w)})
			if err := p.startComponent(ctx, s, err); err != nil {
				return err
			}
			shift = append(shift, s)
		}
		p.Workers = append(p.Workers, shift)
	}
	return nil
}

// startRegions starts the zones and their gateways.
func (p *InMemory) startRegions(ctx context.Context) error {
	for r := range p.cfg.Regions {
		if err := p.startRegion(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (p *InMemory) startRegion(ctx context.Context, r int) error {
	p.Locals, p.Gateways, p.GatewayMetrics = append(p.Locals, nil), append(p.Gateways, nil), append(p.GatewayMetrics, nil)
	for z := range p.cfg.Zones {
		for l := range p.cfg.Locals {
			a, err := p.newLocal(r, z, l)
			if err := p.startComponent(ctx, a, err); err != nil {
				return err
			}
			p.Locals[r] = append(p.Locals[r], a)
		}
	}
	for i := range p.cfg.Gateways {
		g, err := p.newGateway(r, i)
		if err := p.startComponent(ctx, g, err); err != nil {
			return err
		}
		p.Gateways[r] = append(p.Gateways[r], g)
	}
	return nil
}

func (p *InMemory) newLocal(r, z, l int) (*local.Agent, error) {
	region, own := AllSites()[r].Name, LocalHost(r, z, l)
	name := localName(region, z, l)
	certs, err := p.issueCerts(identity.ID{Role: identity.RoleLocal, Region: region, Zone: zoneName(z), Name: name})
	if err != nil {
		return nil, err
	}
	c := local.Config{
		Name: name, Region: region, Zone: zoneName(z), Certs: certs, Network: p.Net.HostAt(own), Listen: own.String() + ":8443",
		Dir: p.stateDir(name), Log: p.cfg.Log,
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

func (p *InMemory) newGateway(r, i int) (*regional.Gateway, error) {
	region, own := AllSites()[r].Name, GatewayHostOf(r, i)
	name := gatewayName(region, i)
	certs, err := p.issueCerts(identity.ID{Role: identity.RoleGateway, Region: region, Name: name})
	if err != nil {
		return nil, err
	}
	var globals []string
	for i := range p.cfg.Globals {
		globals = append(globals, GlobalHost(i).String()+":7100")
	}
	registry := telemetry.NewRegistry("regional", name, "memory")
	p.GatewayMetrics[r] = append(p.GatewayMetrics[r], registry)
	return regional.New(regional.Config{
		Registry: registry, Name: name, Region: region, Certs: certs, Network: p.Net.HostAt(own), Atlas: p.atlas, Dir: p.stateDir(name),
		HTTPListen: own.String() + ":8080", PeerListen: own.String() + ":8443", UplinkListen: own.String() + ":7200",
		Globals: globals, Log: p.cfg.Log,
	})
}

// startGlobals starts the global nodes.
func (p *InMemory) startGlobals(ctx context.Context) error {
	for i := range p.cfg.Globals {
		s, err := p.newGlobal(i)
		p.Globals = append(p.Globals, s)
		if err := p.startComponent(ctx, s, err); err != nil {
			return err
		}
	}
	return nil
}

func (p *InMemory) newGlobal(i int) (*global.Server, error) {
	name, host := fmt.Sprintf("g%d", i+1), GlobalHost(i).String()
	certs, err := p.issueCerts(identity.ID{Role: identity.RoleGlobal, Name: name})
	if err != nil {
		return nil, err
	}
	var peers []consensus.RaftPeer
	for k := range p.cfg.Globals {
		peers = append(peers, consensus.RaftPeer{ID: fmt.Sprintf("g%d", k+1), Addr: GlobalHost(k).String() + ":7000"})
	}
	return global.New(global.Config{
		Name: name, Dir: p.stateDir(name), Certs: certs, Network: p.Net.HostAt(GlobalHost(i)), Atlas: p.atlas, Peers: peers,
		RaftListen: host + ":7000", UplinkListen: host + ":7100", HTTPListen: host + ":8080", DNS: dns.Config{Explain: true},
		SpecName: "spec.yaml", Spec: []byte(p.cfg.specText()), Log: p.cfg.Log,
	})
}

func (p *InMemory) stateDir(name string) string {
	if !p.cfg.KeepState {
		return ""
	}
	return filepath.Join(p.cfg.Dir, "state-"+name)
}

// waitReady waits until all workers of every region are reported and the first plan is in force.
func (p *InMemory) waitReady(ctx context.Context) error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		if p.isReady() {
			return nil
		}
	}
	return errors.Join(errors.New("the fleet was not ready within a minute"), ctx.Err())
}

func (p *InMemory) isReady() bool {
	for i := range p.Globals {
		if v, err := p.QueryDNS(i, ClientAddr(0, 0), "_view."+DNSZone); err != nil || v.Fields["plan_epoch"] == "" || v.Fields["plan_epoch"] == "0" {
			return false
		}
	}
	for r := range p.Locals {
		if p.CountReadyWorkers(r) != int64(p.cfg.workersOf(r)) {
			return false
		}
	}
	return true
}

// CountReadyWorkers is how many workers of a region its instances report as ready now, in total.
func (p *InMemory) CountReadyWorkers(r int) (ready int64) {
	for _, a := range p.Locals[r] {
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

// Stop stops everything, the last started first.
func (p *InMemory) Stop(context.Context) error {
	var errs []error
	for i := len(p.started) - 1; i >= 0; i-- {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		errs = append(errs, p.started[i].Stop(ctx))
		cancel()
	}
	p.started = nil
	return errors.Join(errs...)
}

// KillLocal stops an instance of a region, counted zone by zone, as if it were killed: no farewell message arrives.
func (p *InMemory) KillLocal(r, i int) error {
	a := p.Locals[r][i]
	p.Net.CutHost(LocalHost(r, i/p.cfg.Locals, i%p.cfg.Locals))
	p.started = slices.DeleteFunc(p.started, func(x Runner) bool { return x == Runner(a) })
	p.Locals[r][i] = nil
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := a.Stop(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// StartLocal restarts an instance that was killed.
func (p *InMemory) StartLocal(ctx context.Context, r, i int) (err error) {
	z, l := i/p.cfg.Locals, i%p.cfg.Locals
	p.Net.RestoreHost(LocalHost(r, z, l))
	p.Locals[r][i], err = p.newLocal(r, z, l)
	return p.startComponent(ctx, p.Locals[r][i], err)
}

// CutWorkers disconnects the last n workers of a region from the network.
func (p *InMemory) CutWorkers(r, n int) {
	for w := range n {
		p.Net.CutHost(workerHost(r, len(p.Workers[r])-1-w))
	}
}

// RestoreWorkers reconnects all workers of a region.
func (p *InMemory) RestoreWorkers(r int) {
	for w := range p.Workers[r] {
		p.Net.RestoreHost(workerHost(r, w))
	}
}

// StopGlobal stops a global node. If its host is cut before, no farewell message arrives, as after a kill.
func (p *InMemory) StopGlobal(i int) error {
	p.started = slices.DeleteFunc(p.started, func(x Runner) bool { return x == Runner(p.Globals[i]) })
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return p.Globals[i].Stop(ctx)
}

// StartGlobal restarts a node that was stopped, from its persisted state.
func (p *InMemory) StartGlobal(ctx context.Context, i int) (err error) {
	p.Globals[i], err = p.newGlobal(i)
	return p.startComponent(ctx, p.Globals[i], err)
}
