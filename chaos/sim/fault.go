package sim

import (
	"fmt"
	"slices"
	"time"
)

// FaultKind is the kind of a fault.
type FaultKind string

// Kinds of faults.
const (
	// WorkerDead: the process and its requests are lost; it restarts with an empty cache.
	WorkerDead FaultKind = "worker_dead"
	// WorkerStalled: it accepts requests and emits nothing, and its pages report that it is healthy.
	WorkerStalled FaultKind = "worker_stalled"
	// WorkerSlow: its steps take Factor times as long.
	WorkerSlow FaultKind = "worker_slow"
	// WorkerRefuses: it resets new connections, also those of scrapes; running streams continue.
	WorkerRefuses FaultKind = "worker_refuse"
	// WorkerCuts: it breaks the connection of a Share of its streams after AfterTokens.
	WorkerCuts FaultKind = "worker_die_midstream"
	// ZoneDead: the zone's local tier and its workers are gone.
	ZoneDead FaultKind = "zone_dead"
	// RegionDead: the whole region is lost, including its gateways and its global node.
	RegionDead FaultKind = "region_dead"
	// GlobalDead: all global nodes are lost: no plans, no peer data for gateways, no DNS answers.
	GlobalDead FaultKind = "global_dead"
	// LeaderDead: the leading global node is lost, with all received state.
	LeaderDead FaultKind = "leader_dead"
	// LocalDead: one instance of a zone's local tier is lost, with its streams.
	LocalDead FaultKind = "local_dead"
	// GatewayDead: one of a region's gateways is lost, with its streams.
	GatewayDead FaultKind = "gateway_dead"
	// Drain: the region, the zone if named, or its Workers from Worker on get nothing new; running requests continue.
	Drain FaultKind = "drain"
	// GlobalNodeDead: one global node, by its Instance in the order of SteeringConfig.Nodes, is unreachable; it keeps its state.
	GlobalNodeDead FaultKind = "global_node_dead"
	// Partition: Region is disconnected from From, or from all other regions and the global nodes there if From is
	// empty; From may be "global", which is all global nodes.
	Partition FaultKind = "partition"
)

// Traffic is a kind of traffic between regions.
type Traffic string

// The kinds of traffic between regions.
const (
	SummaryTraffic   Traffic = "summaries"  // reports of gateways to the global tier
	DirectiveTraffic Traffic = "directives" // directives to gateways
	RaftTraffic      Traffic = "raft"       // between global nodes, with their peer reports
	RequestTraffic   Traffic = "requests"   // of clients and between gateways
	DNSTraffic       Traffic = "dns"        // of resolvers
)

var allTraffic = []Traffic{SummaryTraffic, DirectiveTraffic, RaftTraffic, RequestTraffic, DNSTraffic}

// Fault is a fault that is injected at a time and cleared after another.
type Fault struct {
	// At is the time of injection from the start, and For the duration; 0 is forever.
	At, For time.Duration
	Kind    FaultKind
	// Region, Zone and Worker select the target; Worker counts from 0, and Workers is how many, 0 for one.
	Region, Zone    string
	Worker, Workers int
	// Instance for LocalDead and GatewayDead, counted from 0.
	Instance int
	// Over is the time in which traffic leaves the target of Drain; 0: at once.
	Over time.Duration
	// Factor for WorkerSlow.
	Factor float64
	// Share of the requests and AfterTokens for WorkerCuts.
	Share       float64
	AfterTokens int
	// Store is the rate in GB/s at which restarted workers load their weights, from their host's disk or the network,
	// before their engines start and compile (gpu.WorkerProfile.ColdStart) and they serve. 0: they restart at once.
	Store float64
	// From is the other side of a Partition.
	From string
	// Only limits a Partition to these kinds of traffic; empty: it covers all.
	Only []Traffic
}

// FaultKinds lists the names of all faults.
func FaultKinds() []FaultKind {
	return []FaultKind{
		WorkerDead, WorkerStalled, WorkerSlow, WorkerRefuses, WorkerCuts, LocalDead, ZoneDead, GatewayDead, RegionDead, LeaderDead, GlobalNodeDead, GlobalDead, Drain, Partition,
	}
}

// RequiredScopes reports what a fault of this kind must name: a region, a zone of it, workers of that.
func (k FaultKind) RequiredScopes() (region, zone, worker bool) {
	switch k {
	case GlobalDead, LeaderDead, GlobalNodeDead:
		return false, false, false
	case RegionDead, Partition, GatewayDead, Drain:
		return true, false, false
	case ZoneDead, LocalDead:
		return true, true, false
	}
	return true, true, true
}

func (f *Fault) checkFault(fleet *Fleet, globalNodes int) error {
	if f.At < 0 || f.For < 0 {
		return fmt.Errorf("%s at %v for %v: no time may be negative", f.Kind, f.At, f.For)
	}
	if !slices.Contains(FaultKinds(), f.Kind) {
		return fmt.Errorf("unknown fault %q: use one of %v", f.Kind, FaultKinds())
	}
	if !(f.Store >= 0 && f.Store <= 10_000) {
		return fmt.Errorf("%s: weights loaded at %v GB/s: use 0 to 10000", f.Kind, f.Store)
	}
	if f.Kind == GlobalNodeDead && (f.Instance < 0 || f.Instance >= globalNodes) {
		return fmt.Errorf("global_node_dead: node %d of the %d of the global tier: count from 0", f.Instance, globalNodes)
	}
	for _, t := range f.Only {
		if !slices.Contains(allTraffic, t) {
			return fmt.Errorf("%s: unknown traffic %q: use %v", f.Kind, t, allTraffic)
		}
	}
	ofRegion, ofZone, ofWorker := f.Kind.RequiredScopes()
	if !ofRegion {
		return nil
	}
	region := fleet.findRegion(f.Region)
	if region == nil {
		return fmt.Errorf("%s: the fleet has no region %q", f.Kind, f.Region)
	}
	if f.Kind == Partition && f.From != "" && f.From != globalTierName && fleet.findRegion(f.From) == nil {
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
	zone := region.findZone(f.Zone)
	if zone == nil {
		return fmt.Errorf("%s: region %s has no zone %q", f.Kind, f.Region, f.Zone)
	}
	if n := max(zone.Locals, 1); f.Kind == LocalDead && (f.Instance < 0 || f.Instance >= n) {
		return fmt.Errorf("local_dead: instance %d of the %d of zone %s/%s: count from 0", f.Instance, n, f.Region, f.Zone)
	}
	if n := zone.countWorkers(); ofWorker && (f.Worker < 0 || f.Workers < 0 || f.Worker+max(f.Workers, 1) > n) {
		return fmt.Errorf("%s: workers %d to %d of zone %s/%s, which has %d: count from 0", f.Kind, f.Worker, f.Worker+max(f.Workers, 1)-1, f.Region, f.Zone, n)
	}
	if f.Kind == WorkerCuts && !(f.Share > 0 && f.Share <= 1 && f.AfterTokens > 0) {
		return fmt.Errorf("worker_die_midstream of a share of %v after %d tokens: use a share above 0 up to 1, and 1 token or more", f.Share, f.AfterTokens)
	}
	if f.Kind == WorkerSlow && !(f.Factor >= 0.01 && f.Factor <= 1000) {
		return fmt.Errorf("worker_slow by %v: use a factor of 0.01 to 1000", f.Factor)
	}
	return nil
}
