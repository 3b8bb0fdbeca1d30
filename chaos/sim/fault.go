package sim

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local"
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
	// RegionDead: all of the region is gone, its gateway and its node of the global tier too.
	RegionDead Kind = "region_dead"
	// GlobalDead: nobody plans, tells gateways of each other or answers DNS.
	GlobalDead Kind = "global_dead"
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
	// Factor of WorkerSlow.
	Factor float64
	// From is the other side of a Partition.
	From string
}

func (f *Fault) check(fleet *Fleet) error {
	if f.At < 0 || f.For < 0 {
		return fmt.Errorf("%s at %v for %v: no time may be negative", f.Kind, f.At, f.For)
	}
	region := fleet.region(f.Region)
	switch f.Kind {
	case GlobalDead:
		return nil
	case WorkerDead, WorkerStalled, WorkerSlow, ZoneDead, RegionDead, Partition:
	default:
		return fmt.Errorf("unknown fault %q: use worker_dead, worker_stalled, worker_slow, zone_dead, region_dead, global_dead or partition", f.Kind)
	}
	if region == nil {
		return fmt.Errorf("%s: the fleet has no region %q", f.Kind, f.Region)
	}
	if f.Kind == Partition && f.From != "" && f.From != globalTier && fleet.region(f.From) == nil {
		return fmt.Errorf("partition: the fleet has no region %q to be cut off from", f.From)
	}
	if f.Kind == RegionDead || f.Kind == Partition {
		return nil
	}
	zone := region.zone(f.Zone)
	if zone == nil {
		return fmt.Errorf("%s: region %s has no zone %q", f.Kind, f.Region, f.Zone)
	}
	if f.Kind == ZoneDead {
		return nil
	}
	if n := zone.size(); f.Worker < 0 || f.Workers < 0 || f.Worker+max(f.Workers, 1) > n {
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

// strike breaks something, or mends it.
func (r *run) strike(i int32, on bool) {
	f := &r.s.Faults[i]
	r.broken[i] = on
	switch f.Kind {
	case GlobalDead:
		if p := r.planet; p != nil {
			p.deaths += step(on)
		}
	case Partition:
	case RegionDead:
		for _, reg := range r.regions {
			if reg.name == f.Region {
				reg.deaths += step(on)
				reg.down = reg.deaths > 0
				for _, z := range reg.zones {
					r.zoneDown(z, on)
				}
			}
		}
	default:
		z := r.zoneNamed(f.Region, f.Zone)
		if f.Kind == ZoneDead {
			r.zoneDown(z, on)
			return
		}
		for k := range max(f.Workers, 1) {
			r.hit(z.workers[f.Worker+k], f, on)
		}
	}
}

func (r *run) zoneNamed(region, zone string) *zone {
	for _, z := range r.zones {
		if z.region.name == region && z.name == zone {
			return z
		}
	}
	return nil // check has seen that there is one
}

func (r *run) hit(w *worker, f *Fault, on bool) {
	switch f.Kind {
	case WorkerDead:
		r.kill(w, on)
	case WorkerStalled:
		w.stalled += step(on)
		r.plan(w)
	case WorkerSlow:
		factor := 1.0
		if on {
			factor = f.Factor
		}
		w.engine.SetSlowdown(factor * max(w.slowdown, 0.01))
	}
}

// kill ends a worker's process, or starts it anew.
func (r *run) kill(w *worker, dead bool) {
	w.dead += step(dead)
	if !dead || w.dead > 1 {
		return
	}
	w.engine.Settle(r.time(r.now))
	for _, s := range w.engine.CancelAll() {
		x := s.Owner().(*ride)
		if (!w.zone.down || x.push != nil) && !x.over {
			r.lose(x, local.EndLost, openai.CodeUpstream)
		}
	}
	w.before = w.counters()
	w.engine.Restart()
	w.next, w.decodes = never, 0
}

// zoneDown takes a zone away with all that runs and waits there, or brings it back as new.
func (r *run) zoneDown(z *zone, down bool) {
	z.deaths += step(down)
	if down && z.deaths > 1 || !down && z.deaths > 0 {
		return
	}
	if !down {
		z.down = false
		for _, w := range z.workers {
			r.kill(w, false)
		}
		z.teller.last, z.teller.boot = nil, z.teller.boot+1
		if err := r.open(z); err != nil {
			r.failed = err
		}
		return
	}
	z.down = true
	var there []*ride
	for _, x := range r.rides {
		if x.zone == z && x.visit != nil && !x.over {
			there = append(there, x)
		}
	}
	for _, w := range z.workers {
		r.kill(w, true)
	}
	for _, x := range there {
		had := x.first > 0
		x.visit, x.worker, x.seq, x.attempt = nil, nil, nil, local.LabAttempt{}
		if had {
			r.count(x, func(c *Counts) { c.Cut++ })
			r.end(x, false)
			continue
		}
		r.gone(x)
	}
}

// gone is a request whose zone died before its first byte, or was dead when it came.
func (r *run) gone(x *ride) {
	if x.own == nil {
		r.refuse(x, openai.CodeUpstream)
		return
	}
	g := x.home
	if x.guest != nil {
		g = x.peer
	}
	if !g.region.down {
		g.lab.Suspect(x.zone.teller.endpoint, r.time(r.now))
	}
	r.turnedAway(x, openai.CodeUpstream)
}
