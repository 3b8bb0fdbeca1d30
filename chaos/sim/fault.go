package sim

import (
	"fmt"
	"slices"
	"time"
)

// Kind is a way of breaking.
type Kind string

// The kinds of faults.
const (
	// WorkerDead: the process is gone and what it ran with it; it comes back with an empty cache.
	WorkerDead Kind = "worker_dead"
	// WorkerStalled: it takes everything and emits nothing, and its pages say that it is well.
	WorkerStalled Kind = "worker_stalled"
	// WorkerSlow: its steps take Factor times as long.
	WorkerSlow Kind = "worker_slow"
	// ZoneDead: the zone's local tier and its workers are gone.
	ZoneDead Kind = "zone_dead"
	// RegionDead: all of the region is gone, its gateways and its node of the global tier too.
	RegionDead Kind = "region_dead"
	// GlobalDead: nobody plans, tells gateways of each other or answers DNS.
	GlobalDead Kind = "global_dead"
	// LeaderDead: the global node that leads is gone, with all that it knew by hearing.
	LeaderDead Kind = "leader_dead"
	// LocalDead: one instance of a zone's local tier is gone, and with it the streams that it passed on.
	LocalDead Kind = "local_dead"
	// GatewayDead: one of a region's gateways is gone, and with it the streams that it passed on.
	GatewayDead Kind = "gateway_dead"
	// Drain: the region, the zone where one is named, or its Workers from Worker on take nothing new; what runs goes on.
	Drain Kind = "drain"
	// Partition: Region is cut off from From, or from all other regions and the nodes of the global tier there when From is
	// empty; From may be "global", which is all of that tier's nodes.
	Partition Kind = "partition"
)

// Fault is something that breaks at a time, and is mended after another.
type Fault struct {
	// At is when, from the start, and For how long; 0 is for good.
	At, For time.Duration
	Kind    Kind
	// Region, Zone and Worker say what breaks; Worker counts from 0, and Workers is how many, 0 for one.
	Region, Zone    string
	Worker, Workers int
	// Instance of LocalDead and GatewayDead, counted from 0.
	Instance int
	// Factor of WorkerSlow.
	Factor float64
	// Store is how many GB/s the weights of workers that come back are loaded at, from their host's disk or the network, before their
	// engines begin and compile (gpu.Profile.ColdStart) and they serve. 0: they come back at once.
	Store float64
	// From is the other side of a Partition.
	From string
}

// Kinds are the names of all faults.
func Kinds() []Kind {
	return []Kind{
		WorkerDead, WorkerStalled, WorkerSlow, LocalDead, ZoneDead, GatewayDead, RegionDead, LeaderDead, GlobalDead, Drain, Partition,
	}
}

// Needs says what a fault of this kind names besides its time: a region, a zone of it, and workers of that.
func (k Kind) Needs() (region, zone, worker bool) {
	switch k {
	case GlobalDead, LeaderDead:
		return false, false, false
	case RegionDead, Partition, GatewayDead, Drain:
		return true, false, false
	case ZoneDead, LocalDead:
		return true, true, false
	}
	return true, true, true
}

func (f *Fault) check(fleet *Fleet) error {
	if f.At < 0 || f.For < 0 {
		return fmt.Errorf("%s at %v for %v: no time may be negative", f.Kind, f.At, f.For)
	}
	if !slices.Contains(Kinds(), f.Kind) {
		return fmt.Errorf("unknown fault %q: use one of %v", f.Kind, Kinds())
	}
	if !(f.Store >= 0 && f.Store <= 10_000) {
		return fmt.Errorf("%s: weights loaded at %v GB/s: use 0 to 10000", f.Kind, f.Store)
	}
	ofRegion, ofZone, ofWorker := f.Kind.Needs()
	if !ofRegion {
		return nil
	}
	region := fleet.region(f.Region)
	if region == nil {
		return fmt.Errorf("%s: the fleet has no region %q", f.Kind, f.Region)
	}
	if f.Kind == Partition && f.From != "" && f.From != globalTier && fleet.region(f.From) == nil {
		return fmt.Errorf("partition: the fleet has no region %q to be cut off from", f.From)
	}
	if n := max(region.Gateways, 1); f.Kind == GatewayDead && (f.Instance < 0 || f.Instance >= n) {
		return fmt.Errorf("gateway_dead: instance %d of the %d gateways of %s: count from 0", f.Instance, n, f.Region)
	}
	if f.Kind == Drain && f.Zone != "" {
		ofZone, ofWorker = true, f.Workers > 0
	}
	if !ofZone {
		return nil
	}
	zone := region.zone(f.Zone)
	if zone == nil {
		return fmt.Errorf("%s: region %s has no zone %q", f.Kind, f.Region, f.Zone)
	}
	if n := max(zone.Locals, 1); f.Kind == LocalDead && (f.Instance < 0 || f.Instance >= n) {
		return fmt.Errorf("local_dead: instance %d of the %d of zone %s/%s: count from 0", f.Instance, n, f.Region, f.Zone)
	}
	if n := zone.size(); ofWorker && (f.Worker < 0 || f.Workers < 0 || f.Worker+max(f.Workers, 1) > n) {
		return fmt.Errorf("%s: workers %d to %d of zone %s/%s, which has %d: count from 0", f.Kind, f.Worker, f.Worker+max(f.Workers, 1)-1, f.Region, f.Zone, n)
	}
	if f.Kind == WorkerSlow && !(f.Factor >= 0.01 && f.Factor <= 1000) {
		return fmt.Errorf("worker_slow by %v: use a factor of 0.01 to 1000", f.Factor)
	}
	return nil
}

func (f *Fleet) region(name string) *Region {
	for i := range f.Regions {
		if f.Regions[i].Name == name {
			return &f.Regions[i]
		}
	}
	return nil
}

func (r *Region) zone(name string) *Zone {
	for i := range r.Zones {
		if r.Zones[i].Name == name {
			return &r.Zones[i]
		}
	}
	return nil
}

func (z *Zone) size() (n int) {
	for i := range z.Groups {
		n += z.Groups[i].Count
	}
	return n
}

func (r *run) planFaults() {
	r.broken = make([]bool, len(r.s.Faults))
	for i := range r.s.Faults {
		f := &r.s.Faults[i]
		r.agenda.add(event{at: int64(f.At), kind: evFault, who: int32(i)})
		if f.For > 0 {
			r.agenda.add(event{at: int64(f.At + f.For), kind: evMend, who: int32(i)})
		}
	}
}

// step counts causes: what two faults have broken is well when both are mended.
func step(on bool) int {
	if on {
		return 1
	}
	return -1
}
