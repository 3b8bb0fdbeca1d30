package experiment

import (
	_ "embed" // the source whose comments explain the keys
	"time"

	"github.com/spillway-lb/spillway/chaos/sim"
)

//go:embed tiers.go
var tiersSource string

// TierInstances is the number of instances of each tier. If any is more than one, every zone has a gateway.
type TierInstances struct {
	// Gateways of each region, which its clients use equally.
	Gateways int `yaml:"gateways" default:"1"`
	// Locals are the instances of each zone's local tier, which divide its workers.
	Locals int `yaml:"locals" default:"1"`
	// Nodes are the regions with a global node, in the order in which they would lead. Default: the first three.
	Nodes []string `yaml:"nodes"`
	// Election is how long the global tier has no leader, and makes no new plan, after the leader is lost: about 2s
	// in production. DNS is still answered. 0: the next leads at once.
	Election time.Duration `yaml:"election"`
}

// mostInstances bounds the instances of a tier in one place, as in the simulator.
const mostInstances = 16

// addToScenario sets the instances in a scenario.
func (t *TierInstances) addToScenario(s *sim.Scenario) {
	for i := range s.Fleet.Regions {
		r := &s.Fleet.Regions[i]
		r.Gateways = t.Gateways
		for k := range r.Zones {
			r.Zones[k].Locals = t.Locals
		}
	}
	s.Steering.Nodes, s.Steering.ElectionTime = t.Nodes, t.Election
	s.AlwaysGateways = s.AlwaysGateways || t.Gateways > 1 || t.Locals > 1
}

// instancesOf is the number of instances that a fault can select from.
func (t *TierInstances) instancesOf(k sim.FaultKind) int {
	switch k {
	case sim.GatewayDead:
		return max(t.Gateways, 1)
	case sim.LocalDead:
		return max(t.Locals, 1)
	}
	return 1
}
