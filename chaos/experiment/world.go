package experiment

import (
	"fmt"
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
	// leader_dead, global_node_dead, global_dead, partition, or drain: of the region, of the zone if named, or of workers of it.
	Kind    string `yaml:"kind"`
	Region  string `yaml:"region"`  // region of the fault
	Zone    string `yaml:"zone"`    // zone of it, for workers and zones
	Worker  int    `yaml:"worker"`  // the first, from 0
	Workers int    `yaml:"workers"` // how many; 0 is one
	// Instance of the zone or gateway of the region, for local_dead and gateway_dead, from 0; for global_node_dead of the
	// global nodes.
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

func checkNetwork(p *problemList, path string, n *NetworkModel) {
	if n.Loss < 0 || n.Loss >= 1 {
		p.addProblem(path+".loss", fmt.Sprintf("a loss of %v", n.Loss), "use 0 or more, and less than 1")
	}
	if n.Access < 0 || n.Between < 0 {
		p.addProblem(path, "a round trip is negative", "use 0s or more")
	}
}
