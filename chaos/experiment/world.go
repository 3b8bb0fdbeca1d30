package experiment

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/chaos/sim"
	"github.com/spillway-lb/spillway/internal/spec"
)

// RegionLocation is the location of a region, for round trips and nearest regions.
type RegionLocation struct {
	Name string  `yaml:"name"` // of the region
	Lat  float64 `yaml:"lat"`  // degrees north
	Lon  float64 `yaml:"lon"`  // degrees east
}

// NetworkModel sets the round trips of the network.
type NetworkModel struct {
	// Access is the round trip between clients and their region's gateway.
	Access time.Duration `yaml:"access" default:"10ms"`
	// Between is the round trip between any two regions. Default: by their locations.
	Between time.Duration `yaml:"between"`
	// Loss is the fraction of packets between regions that are lost.
	Loss float64 `yaml:"loss"`
}

// TenantShare is a part of the clients.
type TenantShare struct {
	// Name is used in assertions.
	Name string `yaml:"name"`
	// Share is its part of the sessions, relative to the other tenants. If no tenant has a share, the workload
	// assigns tenants; the last of the list stands for all further ones.
	Share float64 `yaml:"share"`
	// Class of its requests: interactive, standard or batch.
	Class spec.Class `yaml:"class" default:"interactive"`
}

// FaultSpec is a fault to inject.
type FaultSpec struct {
	At  time.Duration `yaml:"at"`  // from the start
	For time.Duration `yaml:"for"` // until it is cleared; 0 is forever
	// Kind is worker_dead, worker_stalled, worker_slow, local_dead, zone_dead, gateway_dead, region_dead,
	// leader_dead, global_dead, partition, or drain: of the region, of the zone if named, or of workers of it.
	Kind    string `yaml:"kind"`
	Region  string `yaml:"region"`  // region of the fault
	Zone    string `yaml:"zone"`    // zone of it, for workers and zones
	Worker  int    `yaml:"worker"`  // the first, from 0
	Workers int    `yaml:"workers"` // how many; 0 is one
	// Instance of the zone or gateway of the region, for local_dead and gateway_dead, from 0.
	Instance int     `yaml:"instance"`
	Factor   float64 `yaml:"factor"` // by which worker_slow slows
	// Store is the rate in GB/s at which restarted workers load their weights, before their engine starts, compiles and
	// serves: 0.3 for a plain network disk, 1 streamed, 2 for a fast disk. 0: they serve at once.
	Store float64 `yaml:"store"`
	From  string  `yaml:"from"` // the other side of a partition: a region or "global"; empty is all others
}

func (f *FaultSpec) toSim() sim.Fault {
	return sim.Fault{
		At: f.At, For: f.For, Kind: sim.FaultKind(f.Kind), Region: f.Region, Zone: f.Zone, Worker: f.Worker, Workers: f.Workers, Instance: f.Instance, Factor: f.Factor, Store: f.Store, From: f.From,
	}
}

// faultKinds are the valid kinds.
func faultKinds() (out []string) {
	for _, k := range sim.FaultKinds() {
		out = append(out, string(k))
	}
	return out
}

// locationOf is the location of a region.
func (e *Experiment) locationOf(region string) (p RegionLocation) {
	if i := slices.IndexFunc(e.Places, func(p RegionLocation) bool { return p.Name == region }); i >= 0 {
		return e.Places[i]
	}
	return p
}

// tenantMix is a workload whose requests are distributed over an experiment's tenants.
type tenantMix struct {
	*load.Feed
	tenants  []TenantShare
	excluded []string
	seed     uint64
}

// Peek skips tenants that are left out.
func (c *tenantMix) Peek() (time.Duration, bool, error) {
	for {
		at, ok, err := c.Feed.Peek()
		if !ok || err != nil || len(c.excluded) == 0 {
			return at, ok, err
		}
		if r := c.Feed.Head(); !slices.Contains(c.excluded, c.tenants[c.tenantOf(r)].Name) {
			return at, ok, err
		}
		c.Feed.Pop()
	}
}

// Pop assigns the request's tenant.
func (c *tenantMix) Pop() *load.Request {
	r := c.Feed.Pop()
	if r != nil {
		r.Tenant = c.tenantOf(r)
	}
	return r
}

// tenantOf is the tenant of a request: by its session if tenants have shares, else by the workload.
func (c *tenantMix) tenantOf(r *load.Request) int32 {
	var all float64
	for i := range c.tenants {
		all += c.tenants[i].Share
	}
	last := int32(len(c.tenants) - 1)
	if all == 0 {
		return min(max(r.Tenant, 0), last)
	}
	high, _ := bits.Mul64(r.Session^c.seed, 0x9e3779b97f4a7c15)
	x := float64((high^r.Session*0xff51afd7ed558ccd)>>11) / (1 << 53) * all
	for i := range c.tenants {
		if x -= c.tenants[i].Share; x < 0 {
			return int32(i)
		}
	}
	return last
}

// addWorld adds regions, tenants and faults to a scenario.
func (c *Case) addWorld(e *Experiment, s *sim.Scenario, feed *load.Feed, seed uint64) {
	s.Workload = feed
	for i := range s.Fleet.Regions {
		r := &s.Fleet.Regions[i]
		p := e.locationOf(r.Name)
		r.Lat, r.Lon = p.Lat, p.Lon
	}
	s.Network = sim.NetworkModel{AccessRTT: c.Network.Access, Loss: c.Network.Loss}
	if d := c.Network.Between; d > 0 {
		s.Network.RegionRTT = func(a, b string) time.Duration { return d }
	}
	s.Steering.Enabled = e.Steering
	s.AlwaysGateways = len(s.Fleet.Regions) > 1 || e.Steering
	for i := range c.Faults {
		s.Faults = append(s.Faults, c.Faults[i].toSim())
	}
	if c.Tiers != nil {
		c.Tiers.addToScenario(s)
	}
	s.IsolateRegions = c.Apart
	if len(e.Tenants) > 0 {
		s.Workload = &tenantMix{Feed: feed, tenants: e.Tenants, excluded: c.Without, seed: seed}
		for i := range e.Tenants {
			s.Tenants = append(s.Tenants, e.Tenants[i].Name)
		}
		s.ClassOf = func(r *load.Request) spec.Class {
			return e.Tenants[min(max(r.Tenant, 0), int32(len(e.Tenants)-1))].Class
		}
	}
}

func (e *Experiment) checkTenantsAndPlaces(p *problemList) {
	for i := range e.Tenants {
		at := fmt.Sprintf("$.tenants[%d]", i)
		if t := &e.Tenants[i]; t.Name == "" || slices.ContainsFunc(e.Tenants[:i], func(o TenantShare) bool { return o.Name == t.Name }) {
			p.addProblem(at+".name", fmt.Sprintf("a tenant called %q", t.Name), "give each tenant a name of its own")
		} else if t.Share < 0 || t.Share > 1e6 {
			p.addProblem(at+".share", fmt.Sprintf("a share of %v", t.Share), "use more than 0, or leave it out for all")
		}
	}
	for i := range e.Places {
		if l := &e.Places[i]; l.Lat < -90 || l.Lat > 90 || l.Lon < -180 || l.Lon > 180 {
			p.addProblem(fmt.Sprintf("$.places[%d]", i), fmt.Sprintf("%s lies at %v, %v", cmp.Or(l.Name, "a region"), l.Lat, l.Lon), "use degrees, -90 to 90 and -180 to 180")
		}
	}
	checkNetwork(p, "$.network", &e.Network)
	e.checkTiers(p, "$.tiers", &e.Tiers, e.Fleet)
	for i := range e.Cases {
		c, at := &e.Cases[i], fmt.Sprintf("$.cases[%d]", i)
		if c.Network != nil {
			checkNetwork(p, at+".network", c.Network)
		}
		if c.Tiers != nil {
			e.checkTiers(p, at+".tiers", c.Tiers, slices.Concat(c.Fleet, e.Fleet))
		}
		for k := range c.Faults {
			e.checkFault(p, fmt.Sprintf("%s.faults[%d]", at, k), &c.Faults[k], c)
		}
		for k, name := range c.Without {
			if !slices.ContainsFunc(e.Tenants, func(t TenantShare) bool { return t.Name == name }) {
				p.addProblem(fmt.Sprintf("%s.without[%d]", at, k), fmt.Sprintf("there is no tenant %q", name), "name one of tenants", "$.tenants[*].name")
			}
		}
	}
}

func checkNetwork(p *problemList, path string, n *NetworkModel) {
	if n.Loss < 0 || n.Loss >= 1 {
		p.addProblem(path+".loss", fmt.Sprintf("a loss of %v", n.Loss), "use 0 or more, and less than 1")
	}
	if n.Access < 0 || n.Between < 0 {
		p.addProblem(path, "a round trip is negative", "use 0s or more")
	}
}

func (e *Experiment) checkFault(p *problemList, at string, f *FaultSpec, c *Case) {
	fleet := c.Fleet
	if len(fleet) == 0 {
		fleet = e.Fleet
	}
	has := func(region, zone string) bool {
		return slices.ContainsFunc(fleet, func(g WorkerGroup) bool { return g.Region == region && (zone == "" || g.Zone == zone) })
	}
	tiers := c.Tiers
	if tiers == nil {
		tiers = &e.Tiers
	}
	kind := sim.FaultKind(f.Kind)
	ofRegion, ofZone, _ := kind.RequiredScopes()
	ofZone = ofZone || kind == sim.Drain && f.Zone != ""
	switch {
	case !slices.Contains(faultKinds(), f.Kind):
		p.addProblem(at+".kind", fmt.Sprintf("unknown fault %q", f.Kind), "use one of "+fmt.Sprint(faultKinds()))
	case f.At < 0 || f.For < 0:
		p.addProblem(at, "a time is negative", "use 0s or more")
	case ofRegion && !has(f.Region, ""):
		p.addProblem(at+".region", fmt.Sprintf("the fleet has no region %q", f.Region), "name one of the fleet's", "$.fleet[*].region")
	case ofZone && !has(f.Region, f.Zone):
		p.addProblem(at+".zone", fmt.Sprintf("region %s has no zone %q", f.Region, f.Zone), "name one of the fleet's", "$.fleet[*].zone")
	case f.Instance < 0 || f.Instance >= tiers.instancesOf(kind):
		p.addProblem(at+".instance", fmt.Sprintf("instance %d of %d", f.Instance, tiers.instancesOf(kind)), "count from 0, and say under tiers how many there are", "$.tiers")
	case !(f.Store >= 0 && f.Store <= 10_000):
		p.addProblem(at+".store", fmt.Sprintf("weights loaded at %v GB/s", f.Store), "use 0 to 10000")
	case f.Store > 0 && (f.For == 0 || kind != sim.WorkerDead && kind != sim.ZoneDead && kind != sim.RegionDead):
		p.addProblem(at+".store", "no worker comes back from this fault", "say for how long a worker_dead, zone_dead or region_dead lasts")
	case f.Kind == string(sim.WorkerSlow) && (f.Factor < 0.01 || f.Factor > 1000):
		p.addProblem(at+".factor", fmt.Sprintf("slower by a factor of %v", f.Factor), "use 0.01 to 1000")
	}
}
