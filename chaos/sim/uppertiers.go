package sim

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional/routing"
)

// gatewayInstance is one instance of a region's regional tier.
type gatewayInstance struct {
	index         int32 // in simulation.gateways
	region        *regionState
	name          string
	model         *gatewayModel
	sender        summarySender
	down          bool
	deathCauses   int // active causes of its death
	startCount    uint64
	spillsByPeer  []int64 // by peer region
	lastDirective struct {
		news  uint64
		again int64
	}
}

// globalTier is the global tier, with the resolvers that query it.
type globalTier struct {
	nodes        []*globalNode
	agreedPlan   agreedPlan
	planInterval int64
	deathCauses  int
	leader       *globalNode // the leader since some time, if elections take time
	leaderSince  int64
	hadLeader    bool                      // there was a leader
	dnsCaches    []map[int32]*cachedAnswer // by region and resolver
}

// cachedAnswer is a resolver's cached answer.
type cachedAnswer struct {
	region    int32
	gateways  []*gatewayInstance // its gateways, in the order of the answer
	expiresAt int64
}

const (
	// planAgreementDelay is the time from making a plan until it is in force.
	planAgreementDelay = int64(100 * time.Millisecond)
	// defaultServiceName is the name that clients resolve if the scenario's spec has none.
	defaultServiceName = "chat.spillway.test."
)

// defaultLatitude is the latitude of a region without a location, because a spec requires one.
const defaultLatitude = 0.01

// hasUpperTiers reports whether the scenario has tiers above zones.
func (s *Scenario) hasUpperTiers() bool {
	f := s.Fleet.Regions
	return s.AlwaysGateways || len(f) > 1 || len(f[0].Zones) > 1 || f[0].Gateways > 1 || f[0].Zones[0].Locals > 1
}

// prepareSpec makes the spec of a fleet with gateways.
func (r *simulation) prepareSpec() error {
	r.spec = r.scenario.Spec
	if !r.scenario.hasUpperTiers() || r.baseline != noBaseline {
		return nil
	}
	if r.spec == nil {
		var err error
		if r.spec, err = spec.Decode("the scenario's own spec", []byte(r.defaultSpecText())); err != nil {
			return fmt.Errorf("making a spec of the fleet: %w", err)
		}
	}
	for i := range r.scenario.Fleet.Regions {
		if r.spec.FindRegion(r.scenario.Fleet.Regions[i].Name) == nil {
			return fmt.Errorf("the spec does not list the fleet's region %s: add it under regions, or leave the spec out", r.scenario.Fleet.Regions[i].Name)
		}
	}
	if len(r.spec.Regions) != len(r.scenario.Fleet.Regions) {
		return fmt.Errorf("the spec lists %d regions and the fleet has %d: list the same", len(r.spec.Regions), len(r.scenario.Fleet.Regions))
	}
	for _, t := range append([]string{r.tenantName(0)}, r.scenario.Tenants...) {
		if r.spec.FindTenant(t) == nil {
			return fmt.Errorf("the spec knows no tenant %s: declare it under tenants, or leave the spec out", t)
		}
	}
	return nil
}

// defaultSpecText is a minimal spec that serves the fleet's models to all tenants.
func (r *simulation) defaultSpecText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "zone:\n  name: spillway.test.\n  nameservers: [{name: ns1.spillway.test., addresses: [192.0.2.1]}]\n")
	ttl := r.scenario.Steering.TTL
	if ttl == 0 {
		ttl = 30 * time.Second
	}
	fmt.Fprintf(&b, "services:\n  - {name: %s, ttl: %s}\nregions:\n", defaultServiceName, ttl)
	for i := range r.scenario.Fleet.Regions {
		f := &r.scenario.Fleet.Regions[i]
		var zones []string
		for k := range f.Zones {
			zones = append(zones, f.Zones[k].Name)
		}
		if f.Lat == 0 && f.Lon == 0 {
			f.Lat = defaultLatitude
		}
		var doors []string
		for k := range max(f.Gateways, 1) {
			host := fmt.Sprintf("10.%d.%d.%d", 2+k, i/250, i%250+1)
			doors = append(doors, fmt.Sprintf("{name: %s, addresses: [%q], url: \"http://%s:8080\"}", instanceName(f.Name+"-gw", k, f.Gateways), host, host))
		}
		fmt.Fprintf(&b, "  - {name: %s, place: {lat: %g, lon: %g}, zones: [%s], gateways: [%s]}\n",
			f.Name, f.Lat, f.Lon, strings.Join(zones, ", "), strings.Join(doors, ", "))
	}
	if r.scenario.IsolateRegions {
		b.WriteString("routing: {spill: false}\n")
	}
	b.WriteString("models:\n")
	for _, m := range r.servedModels() {
		fmt.Fprintf(&b, "  - {name: %s}\n", m)
	}
	b.WriteString("tenants:\n")
	names := r.scenario.Tenants
	if len(names) == 0 {
		names = []string{spec.DefaultTenant}
	}
	for _, t := range names {
		fmt.Fprintf(&b, "  - {name: %s, keys: [%q]}\n", t, spec.HashKey("sk-lab-"+t))
	}
	return b.String()
}

// addGateways adds the gateways of a region.
func (r *simulation) addGateways(reg *regionState) {
	n := r.scenario.Fleet.Regions[reg.index].Gateways
	declared := r.spec.FindRegion(reg.name).Gateways
	for i := range max(n, 1) {
		g := &gatewayInstance{index: int32(len(r.gateways)), region: reg, name: instanceName(reg.name+"-gw", i, n), spillsByPeer: make([]int64, len(r.scenario.Fleet.Regions))}
		if i < len(declared) {
			g.name = declared[i].Name
			for _, a := range declared[i].Addresses {
				r.gatewayByAddr[a.Unmap()] = g
			}
		}
		reg.gateways, r.gateways = append(reg.gateways, g), append(r.gateways, g)
		g.sender = summarySender{path: capacity.Path{Region: reg.name, Instance: g.name}, endpoint: g.name}
		r.gatewayByName[g.name] = g
		r.startGateway(g)
	}
	for _, z := range reg.zones {
		for _, a := range z.instances {
			r.instanceByName[a.name] = a
			r.events.addEvent(event{kind: evZoneSummaryDue, index: a.index})
			if a.peers != nil {
				r.events.addEvent(event{at: int64(assignmentInterval), kind: evAssignWorkers, index: a.index, payload: 0})
			}
		}
	}
	for _, g := range reg.gateways {
		r.events.addEvent(event{at: int64(routing.RebuildInterval), kind: evRebuildView, index: g.index})
		r.events.addEvent(event{at: 1, kind: evRegionSummaryDue, index: g.index})
	}
}

// startGateway starts a gateway with no state but the spec.
func (r *simulation) startGateway(g *gatewayInstance) {
	g.startCount++
	seat := g.startCount<<48 | seedGateways<<32
	if g.startCount == 1 {
		seat = seedGateways << 32
	}
	g.model = newGatewayModel(gatewayModelConfig{
		name: g.name, region: g.region.name, spec: r.spec, standalone: !r.scenario.Steering.Enabled && len(r.scenario.Fleet.Regions) == 1, boot: g.startCount,
		seed: rand.New(rand.NewPCG(r.scenario.Seed, seat|uint64(g.index))).Uint64(),
	}, r.timeAt(r.now))
	g.sender.lastSummary, g.sender.boot = nil, g.startCount
	for _, o := range r.regions { // round trips are measured at once
		if o != g.region && r.global != nil {
			g.model.peerRTTs.AddSample(o.name, time.Duration(r.regionRTT(g.region, o)), r.timeAt(r.now))
		}
	}
}

// startGlobalTier adds the global tier above the gateways.
func (r *simulation) startGlobalTier() {
	if len(r.regions) < 2 {
		return
	}
	p := &globalTier{planInterval: int64(r.spec.Steering.Interval)}
	if p.planInterval <= 0 {
		p.planInterval = int64(time.Second)
	}
	for range r.regions {
		p.dnsCaches = append(p.dnsCaches, map[int32]*cachedAnswer{})
	}
	r.global, p.nodes = p, r.newGlobalNodes()
	r.events.addEvent(event{at: int64(snapshot.RebuildInterval), kind: evRefreshSnapshot})
	r.events.addEvent(event{at: int64(snapshot.PeersInterval), kind: evGlobalDirectiveDue})
	r.events.addEvent(event{at: int64(peerReportInterval), kind: evPeerReportDue})
	r.events.addEvent(event{at: p.planInterval, kind: evMakePlan})
	for _, g := range r.gateways {
		for _, o := range r.regions {
			if o != g.region {
				g.model.peerRTTs.AddSample(o.name, time.Duration(r.regionRTT(g.region, o)), r.timeAt(0))
			}
		}
	}
}

// sendZoneSummary sends the summary of a zone's instance to its region's gateways.
func (r *simulation) sendZoneSummary(a *localInstance) {
	if a.down {
		r.events.addEvent(event{at: r.now + summaryInterval, kind: evZoneSummaryDue, index: a.index})
		return
	}
	said, next := a.sender.nextSummary(a.sim.Reports.BuildSummary(a.sim.path, r.timeAt(r.now)), r.now)
	r.events.addEvent(event{at: next, kind: evZoneSummaryDue, index: a.index})
	for _, g := range a.zone.region.gateways {
		r.events.addEvent(event{at: r.now + r.zoneDelay(), kind: evZoneSummaryArrival, index: g.index, payload: said})
		if a.peers != nil && !g.down {
			a.peers.RecordGatewayAlive(g.name, r.timeAt(r.now))
		}
	}
}

func (r *simulation) receiveZoneSummary(g *gatewayInstance, s *capacity.Summary) {
	if !g.down {
		g.model.receiveSummary(s, r.timeAt(r.now))
		r.sendZoneDirectives(g)
	}
}

// rebuildGatewayView rebuilds a gateway's view: missing reports become stale with time.
func (r *simulation) rebuildGatewayView(g *gatewayInstance) {
	r.events.addEvent(event{at: r.now + int64(routing.RebuildInterval), kind: evRebuildView, index: g.index})
	if !g.down {
		g.model.router.Rebuild(r.timeAt(r.now))
		r.sendZoneDirectives(g)
	}
}

// sendRegionSummary sends a gateway's summary of its region to the global tier.
func (r *simulation) sendRegionSummary(g *gatewayInstance) {
	if r.global == nil {
		return
	}
	if g.down {
		r.events.addEvent(event{at: r.now + summaryInterval, kind: evRegionSummaryDue, index: g.index})
		return
	}
	said, next := g.sender.nextSummary(g.model.buildSummary(r.timeAt(r.now)), r.now)
	r.events.addEvent(event{at: next, kind: evRegionSummaryDue, index: g.index})
	for _, n := range r.global.nodes {
		if !r.canReach(g.region, n) {
			continue
		}
		if late, ok := r.datagramDelay(g.region, n.region); ok {
			r.events.addEvent(event{at: r.now + late, kind: evRegionSummaryArrival, index: n.index, payload: said})
		}
	}
}

func (r *simulation) receiveRegionSummary(n *globalNode, s *capacity.Summary) {
	if r.global.isUp(n) {
		n.core.summaries.PutSummary(s, r.timeAt(r.now))
	}
}

func (r *simulation) sendGlobalDirectives() {
	p := r.global
	r.events.addEvent(event{at: r.now + int64(snapshot.PeersInterval), kind: evGlobalDirectiveDue})
	for _, n := range p.nodes {
		for _, g := range r.gateways {
			if !r.canReach(g.region, n) {
				continue
			}
			if late, ok := r.datagramDelay(g.region, n.region); ok {
				r.events.addEvent(event{at: r.now + late, kind: evGlobalDirectiveArrival, index: g.index, payload: n.core.buildDirective(g.region.name, r.timeAt(r.now))})
			}
		}
	}
}

func (r *simulation) applyGlobalDirective(g *gatewayInstance, d *uplink.Directive) {
	if !g.down {
		g.model.applyDirective(d, r.spec, r.timeAt(r.now))
		r.sendZoneDirectives(g)
	}
}

func (r *simulation) refreshSnapshots() {
	r.events.addEvent(event{at: r.now + int64(snapshot.RebuildInterval), kind: evRefreshSnapshot})
	now := r.timeAt(r.now)
	r.distributePlan(now)
	for _, n := range r.global.nodes {
		if r.global.isUp(n) {
			n.core.refreshSnapshot(now)
		}
	}
}

// resolveGateway is the gateway that a client uses: one of its own region, or of its resolver's answer. fresh
// bypasses the resolver's cache.
func (r *simulation) resolveGateway(x *simulatedRequest, fresh bool) *gatewayInstance {
	q := x.req
	own := r.clientRegion(q)
	turn := splitMix64(q.Session) + uint64(x.clientTries)
	door := func(list []*gatewayInstance) *gatewayInstance { return list[turn%uint64(len(list))] }
	p := r.global
	if p == nil || !r.scenario.Steering.Enabled {
		return door(own.gateways)
	}
	n := int32(splitMix64(q.Session) % uint64(r.scenario.Steering.resolverCount()))
	kept := p.dnsCaches[own.index][n]
	if kept != nil && r.now < kept.expiresAt && !fresh {
		return door(kept.gateways)
	}
	asked := r.nearestNode(own)
	if asked == nil { // no answer: the cached one stays in use
		if kept != nil {
			return door(kept.gateways)
		}
		return door(own.gateways)
	}
	r.result.Queries++
	to, ttl := asked.core.pickRegion(0, own.location, resolverAddr(own.index, n))
	at := r.regionIndex(to)
	if at < 0 {
		return door(own.gateways)
	}
	if kept == nil {
		kept = &cachedAnswer{}
		p.dnsCaches[own.index][n] = kept
	}
	kept.region, kept.expiresAt = at, r.now+int64(ttl)
	kept.gateways = kept.gateways[:0]
	for _, a := range asked.core.gatewayAddrs(to) {
		if g := r.gatewayByAddr[a.Unmap()]; g != nil {
			kept.gateways = append(kept.gateways, g)
		}
	}
	if len(kept.gateways) == 0 {
		kept.gateways = append(kept.gateways, r.regions[at].gateways...)
	}
	return door(kept.gateways)
}

// regionIndex is the fleet's index of a region of the spec.
func (r *simulation) regionIndex(inSpec int) int32 {
	if inSpec < 0 {
		return -1
	}
	name := r.spec.Regions[inSpec].Name
	for i, reg := range r.regions {
		if reg.name == name {
			return int32(i)
		}
	}
	return -1
}

// resolverAddr is the address of a resolver of a region; each has its own network.
func resolverAddr(region, n int32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(20 + region%200), byte(n >> 8), byte(n), 7})
}

// splitMix64 is the finalizer of splitmix64.
func splitMix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
