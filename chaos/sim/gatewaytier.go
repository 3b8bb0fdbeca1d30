package sim

import (
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional/routing"
)

// gatewayTier is the regional tier: the gateways of all regions, their reports, and requests at them.
type gatewayTier struct {
	scenario        *Scenario
	spec            *spec.Spec
	result          *RunResult
	serviceName     string
	clientCells     []string // of the regions' clients
	sendsDirectives bool     // gateways have something to send to zones

	loop     *eventLoop
	topology *topology
	network  *network
	reader   *requestReader
	requests *requestTable
	global   *globalTier
}

func newGatewayTier(s *Scenario, sp *spec.Spec) *gatewayTier {
	gt := &gatewayTier{scenario: s, spec: sp}
	for i := range s.Fleet.Regions {
		f := &s.Fleet.Regions[i]
		gt.clientCells = append(gt.clientCells, geo.CellName(geo.CellAt(geo.Location{City: f.Name, Lat: f.Lat, Lon: f.Lon})))
	}
	if sp != nil && len(sp.Services) > 0 {
		gt.serviceName = sp.Services[0].Name
	}
	gt.sendsDirectives = gt.needsDirectives()
	return gt
}

// gatewayInstance is one instance of a region's regional tier.
type gatewayInstance struct {
	index         int32 // in topology.gateways
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

// addGateways adds the gateways of a region.
func (gt *gatewayTier) addGateways(reg *regionState) {
	n := gt.scenario.Fleet.Regions[reg.index].Gateways
	declared := gt.spec.FindRegion(reg.name).Gateways
	for i := range max(n, 1) {
		g := &gatewayInstance{index: int32(len(gt.topology.gateways)), region: reg, name: instanceName(reg.name+"-gw", i, n), spillsByPeer: make([]int64, len(gt.scenario.Fleet.Regions))}
		if i < len(declared) {
			g.name = declared[i].Name
			for _, a := range declared[i].Addresses {
				gt.topology.gatewayByAddr[a.Unmap()] = g
			}
		}
		reg.gateways, gt.topology.gateways = append(reg.gateways, g), append(gt.topology.gateways, g)
		g.sender = summarySender{path: capacity.Path{Region: reg.name, Instance: g.name}, endpoint: g.name}
		gt.topology.gatewayByName[g.name] = g
		gt.startGateway(g)
	}
	for _, z := range reg.zones {
		for _, a := range z.instances {
			gt.topology.instanceByName[a.name] = a
			gt.loop.addEvent(event{kind: evZoneSummaryDue, index: a.index})
			if a.peers != nil {
				gt.loop.addEvent(event{at: int64(assignmentInterval), kind: evAssignWorkers, index: a.index, payload: 0})
			}
		}
	}
	for _, g := range reg.gateways {
		gt.loop.addEvent(event{at: int64(routing.RebuildInterval), kind: evRebuildView, index: g.index})
		gt.loop.addEvent(event{at: 1, kind: evRegionSummaryDue, index: g.index})
	}
}

// startGateway starts a gateway with no state but the spec.
func (gt *gatewayTier) startGateway(g *gatewayInstance) {
	g.startCount++
	seat := g.startCount<<48 | seedGateways<<32
	if g.startCount == 1 {
		seat = seedGateways << 32
	}
	g.model = newGatewayModel(gatewayModelConfig{
		name: g.name, region: g.region.name, spec: gt.spec, standalone: !gt.scenario.Steering.Enabled && len(gt.scenario.Fleet.Regions) == 1, boot: g.startCount,
		seed: rand.New(rand.NewPCG(gt.scenario.Seed, seat|uint64(g.index))).Uint64(),
	}, gt.loop.currentTime())
	g.sender.lastSummary, g.sender.boot = nil, g.startCount
	for _, o := range gt.topology.regions { // round trips are measured at once
		if o != g.region && gt.global.hasNodes() {
			g.model.peerRTTs.AddSample(o.name, time.Duration(gt.network.regionRTT(g.region, o)), gt.loop.currentTime())
		}
	}
}

func (gt *gatewayTier) receiveZoneSummary(g *gatewayInstance, s *capacity.Summary) {
	if !g.down {
		g.model.receiveSummary(s, gt.loop.currentTime())
		gt.sendZoneDirectives(g)
	}
}

// rebuildGatewayView rebuilds a gateway's view: missing reports become stale with time.
func (gt *gatewayTier) rebuildGatewayView(g *gatewayInstance) {
	gt.loop.addEvent(event{at: gt.loop.now + int64(routing.RebuildInterval), kind: evRebuildView, index: g.index})
	if !g.down {
		g.model.router.Rebuild(gt.loop.currentTime())
		gt.sendZoneDirectives(g)
	}
}

// sendRegionSummary sends a gateway's summary of its region to the global tier.
func (gt *gatewayTier) sendRegionSummary(g *gatewayInstance) {
	if !gt.global.hasNodes() {
		return
	}
	if g.down {
		gt.loop.addEvent(event{at: gt.loop.now + summaryInterval, kind: evRegionSummaryDue, index: g.index})
		return
	}
	summary, next := g.sender.nextSummary(g.model.buildSummary(gt.loop.currentTime()), gt.loop.now)
	gt.loop.addEvent(event{at: next, kind: evRegionSummaryDue, index: g.index})
	for _, n := range gt.global.nodes {
		if !gt.global.canReach(g.region, n, SummaryTraffic) {
			continue
		}
		if late, ok := gt.network.datagramDelay(g.region, n.region, SummaryTraffic); ok {
			gt.loop.addEvent(event{at: gt.loop.now + late, kind: evRegionSummaryArrival, index: n.index, payload: summary})
		}
	}
}

func (gt *gatewayTier) applyGlobalDirective(g *gatewayInstance, d *uplink.Directive) {
	if !g.down {
		g.model.applyDirective(d, gt.spec, gt.loop.currentTime())
		gt.sendZoneDirectives(g)
	}
}

// needsDirectives reports whether gateways have anything to send to their zones.
func (gt *gatewayTier) needsDirectives() bool {
	for i := range gt.scenario.Fleet.Regions {
		for k := range gt.scenario.Fleet.Regions[i].Zones {
			if gt.scenario.Fleet.Regions[i].Zones[k].Locals > 1 {
				return true
			}
		}
	}
	for i := range gt.scenario.Faults {
		if gt.scenario.Faults[i].Kind == Drain {
			return true
		}
	}
	return false
}

// sendZoneDirectives lets a gateway send its directive and the live instances to its zones, after a change or when
// due.
func (gt *gatewayTier) sendZoneDirectives(g *gatewayInstance) {
	if !gt.sendsDirectives || g.down {
		return
	}
	news := g.model.directiveVersion()
	if news == g.lastDirective.news && gt.loop.now < g.lastDirective.again {
		return
	}
	g.lastDirective.news, g.lastDirective.again = news, gt.loop.now+directiveInterval
	for _, z := range g.region.zones {
		for _, a := range z.instances {
			gt.loop.addEvent(event{at: gt.loop.now + gt.network.zoneDelay(), kind: evZoneDirectiveArrival, index: a.index, payload: directiveMessage{g, g.model.directiveFor(a.sender.path)}})
		}
	}
}

// directiveMessage is a directive in transit to a zone.
type directiveMessage struct {
	sender    *gatewayInstance
	directive *uplink.Directive
}
