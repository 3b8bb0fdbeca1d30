package sim

import "github.com/spillway-lb/spillway/internal/uplink"

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
