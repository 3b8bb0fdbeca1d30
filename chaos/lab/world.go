package lab

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

// Place is where a region is, for round trips and for who is nearest.
type Place struct {
	Name string  `yaml:"name"` // of the region
	Lat  float64 `yaml:"lat"`  // degrees north
	Lon  float64 `yaml:"lon"`  // degrees east
}

// Network is how far things are from each other.
type Network struct {
	// Access is the round trip between clients and their region's gateway.
	Access time.Duration `yaml:"access" default:"10ms"`
	// Between is the round trip between any two regions. Default: by their places.
	Between time.Duration `yaml:"between"`
	// Loss is the part of packets between regions that is lost.
	Loss float64 `yaml:"loss"`
}

// Tenant is a part of those who ask.
type Tenant struct {
	// Name stands in pass lines.
	Name string `yaml:"name"`
	// Share is its part of the sessions, against the other tenants'. Where no tenant has one, the workload says who is who;
	// the last of the list is everybody beyond it.
	Share float64 `yaml:"share"`
	// Class of its requests: interactive, standard or batch.
	Class spec.Class `yaml:"class" default:"interactive"`
}

// Fault is something that breaks.
type Fault struct {
	At  time.Duration `yaml:"at"`  // from the start
	For time.Duration `yaml:"for"` // until it is mended; 0 is for good
	// Kind is worker_dead, worker_stalled, worker_slow, local_dead, zone_dead, gateway_dead, region_dead, leader_dead, global_dead,
	// partition, or drain: of the region, of the zone where one is named, or of so many workers of it.
	Kind    string `yaml:"kind"`
	Region  string `yaml:"region"`  // that breaks
	Zone    string `yaml:"zone"`    // of it, for workers and zones
	Worker  int    `yaml:"worker"`  // the first, from 0
	Workers int    `yaml:"workers"` // how many; 0 is one
	// Instance of the zone or gateway of the region, for local_dead and gateway_dead, from 0.
	Instance int     `yaml:"instance"`
	Factor   float64 `yaml:"factor"` // by which worker_slow slows
	// Store is how fast workers that come back load their weights, in GB/s, before their engine begins, compiles and serves: 0.3 for
	// a plain network disk, 1 streamed, 2 for a fast disk. 0: they serve at once.
	Store float64 `yaml:"store"`
	From  string  `yaml:"from"` // the other side of a partition: a region or "global"; empty is everybody
}

func (f *Fault) sim() sim.Fault {
	return sim.Fault{
		At: f.At, For: f.For, Kind: sim.Kind(f.Kind), Region: f.Region, Zone: f.Zone, Worker: f.Worker, Workers: f.Workers, Instance: f.Instance, Factor: f.Factor, Store: f.Store, From: f.From,
	}
}

// faults are the kinds that there are.
func faults() (out []string) {
	for _, k := range sim.Kinds() {
		out = append(out, string(k))
	}
	return out
}

// place is where a region is.
func (e *Experiment) place(region string) (p Place) {
	if i := slices.IndexFunc(e.Places, func(p Place) bool { return p.Name == region }); i >= 0 {
		return e.Places[i]
	}
	return p
}

// crowd is a workload whose requests are shared out among an experiment's tenants.
type crowd struct {
	*load.Feed
	tenants []Tenant
	without []string
	seed    uint64
}

// Peek passes over those who are left out.
func (c *crowd) Peek() (time.Duration, bool, error) {
	for {
		at, ok, err := c.Feed.Peek()
		if !ok || err != nil || len(c.without) == 0 {
			return at, ok, err
		}
		if r := c.Feed.Head(); !slices.Contains(c.without, c.tenants[c.tenant(r)].Name) {
			return at, ok, err
		}
		c.Feed.Pop()
	}
}

// Pop says whose the request is.
func (c *crowd) Pop() *load.Request {
	r := c.Feed.Pop()
	if r != nil {
		r.Tenant = c.tenant(r)
	}
	return r
}

// tenant is whose a request is: by its session where tenants have shares, else by what the workload says.
func (c *crowd) tenant(r *load.Request) int32 {
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

// world puts regions, tenants and faults into a scenario.
func (c *Case) world(e *Experiment, s *sim.Scenario, feed *load.Feed, seed uint64) {
	s.Workload = feed
	for i := range s.Fleet.Regions {
		r := &s.Fleet.Regions[i]
		p := e.place(r.Name)
		r.Lat, r.Lon = p.Lat, p.Lon
	}
	s.Network = sim.Network{Access: c.Network.Access, Loss: c.Network.Loss}
	if d := c.Network.Between; d > 0 {
		s.Network.Between = func(a, b string) time.Duration { return d }
	}
	s.Steering.On = e.Steering
	s.Gateways = len(s.Fleet.Regions) > 1 || e.Steering
	for i := range c.Faults {
		s.Faults = append(s.Faults, c.Faults[i].sim())
	}
	if c.Tiers != nil {
		c.Tiers.into(s)
	}
	s.Apart = c.Apart
	if len(e.Tenants) > 0 {
		s.Workload = &crowd{Feed: feed, tenants: e.Tenants, without: c.Without, seed: seed}
		for i := range e.Tenants {
			s.Tenants = append(s.Tenants, e.Tenants[i].Name)
		}
		s.Class = func(r *load.Request) spec.Class {
			return e.Tenants[min(max(r.Tenant, 0), int32(len(e.Tenants)-1))].Class
		}
	}
}

func (e *Experiment) checkWorld(p *problems) {
	for i := range e.Tenants {
		at := fmt.Sprintf("$.tenants[%d]", i)
		if t := &e.Tenants[i]; t.Name == "" || slices.ContainsFunc(e.Tenants[:i], func(o Tenant) bool { return o.Name == t.Name }) {
			p.add(at+".name", fmt.Sprintf("a tenant called %q", t.Name), "give each tenant a name of its own")
		} else if t.Share < 0 || t.Share > 1e6 {
			p.add(at+".share", fmt.Sprintf("a share of %v", t.Share), "use more than 0, or leave it out for all")
		}
	}
	for i := range e.Places {
		if l := &e.Places[i]; l.Lat < -90 || l.Lat > 90 || l.Lon < -180 || l.Lon > 180 {
			p.add(fmt.Sprintf("$.places[%d]", i), fmt.Sprintf("%s lies at %v, %v", cmp.Or(l.Name, "a region"), l.Lat, l.Lon), "use degrees, -90 to 90 and -180 to 180")
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
			if !slices.ContainsFunc(e.Tenants, func(t Tenant) bool { return t.Name == name }) {
				p.add(fmt.Sprintf("%s.without[%d]", at, k), fmt.Sprintf("there is no tenant %q", name), "name one of tenants", "$.tenants[*].name")
			}
		}
	}
}

func checkNetwork(p *problems, path string, n *Network) {
	if n.Loss < 0 || n.Loss >= 1 {
		p.add(path+".loss", fmt.Sprintf("a loss of %v", n.Loss), "use 0 or more, and less than 1")
	}
	if n.Access < 0 || n.Between < 0 {
		p.add(path, "a round trip is negative", "use 0s or more")
	}
}

func (e *Experiment) checkFault(p *problems, at string, f *Fault, c *Case) {
	fleet := c.Fleet
	if len(fleet) == 0 {
		fleet = e.Fleet
	}
	has := func(region, zone string) bool {
		return slices.ContainsFunc(fleet, func(g Group) bool { return g.Region == region && (zone == "" || g.Zone == zone) })
	}
	tiers := c.Tiers
	if tiers == nil {
		tiers = &e.Tiers
	}
	kind := sim.Kind(f.Kind)
	ofRegion, ofZone, _ := kind.Needs()
	ofZone = ofZone || kind == sim.Drain && f.Zone != ""
	switch {
	case !slices.Contains(faults(), f.Kind):
		p.add(at+".kind", fmt.Sprintf("unknown fault %q", f.Kind), "use one of "+fmt.Sprint(faults()))
	case f.At < 0 || f.For < 0:
		p.add(at, "a time is negative", "use 0s or more")
	case ofRegion && !has(f.Region, ""):
		p.add(at+".region", fmt.Sprintf("the fleet has no region %q", f.Region), "name one of the fleet's", "$.fleet[*].region")
	case ofZone && !has(f.Region, f.Zone):
		p.add(at+".zone", fmt.Sprintf("region %s has no zone %q", f.Region, f.Zone), "name one of the fleet's", "$.fleet[*].zone")
	case f.Instance < 0 || f.Instance >= tiers.instances(kind):
		p.add(at+".instance", fmt.Sprintf("instance %d of %d", f.Instance, tiers.instances(kind)), "count from 0, and say under tiers how many there are", "$.tiers")
	case !(f.Store >= 0 && f.Store <= 10_000):
		p.add(at+".store", fmt.Sprintf("weights loaded at %v GB/s", f.Store), "use 0 to 10000")
	case f.Store > 0 && (f.For == 0 || kind != sim.WorkerDead && kind != sim.ZoneDead && kind != sim.RegionDead):
		p.add(at+".store", "no worker comes back from this fault", "say for how long a worker_dead, zone_dead or region_dead lasts")
	case f.Kind == string(sim.WorkerSlow) && (f.Factor < 0.01 || f.Factor > 1000):
		p.add(at+".factor", fmt.Sprintf("slower by a factor of %v", f.Factor), "use 0.01 to 1000")
	}
}
