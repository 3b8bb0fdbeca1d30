package lab

import (
	_ "embed" // the source whose comments explain the keys
	"fmt"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/chaos/sim"
)

//go:embed tiers.go
var tiersSource string

// Tiers is how many instances of each tier there are. Where there is more than one, a gateway stands before every zone.
type Tiers struct {
	// Gateways of each region, which its clients use alike.
	Gateways int `yaml:"gateways" default:"1"`
	// Locals are the instances of each zone's local tier, among which its workers are divided.
	Locals int `yaml:"locals" default:"1"`
	// Nodes are the regions in which the global tier has a node, in the order in which they would lead. Default: the first three.
	Nodes []string `yaml:"nodes"`
	// Election is how long nobody leads those nodes, and no new plan is made, after the leader is gone: about 2s in production. DNS is
	// answered on. 0: the next leads at once.
	Election time.Duration `yaml:"election"`
}

// mostInstances bounds the instances of a tier in one place, as the simulator does.
const mostInstances = 16

// into puts the instances into a scenario.
func (t *Tiers) into(s *sim.Scenario) {
	for i := range s.Fleet.Regions {
		r := &s.Fleet.Regions[i]
		r.Gateways = t.Gateways
		for k := range r.Zones {
			r.Zones[k].Locals = t.Locals
		}
	}
	s.Steering.Nodes, s.Steering.Election = t.Nodes, t.Election
	s.Gateways = s.Gateways || t.Gateways > 1 || t.Locals > 1
}

func (e *Experiment) checkTiers(p *problems, path string, t *Tiers, fleet []Group) {
	if t.Gateways < 0 || t.Gateways > mostInstances {
		p.add(path+".gateways", fmt.Sprintf("%d gateways of a region", t.Gateways), fmt.Sprintf("use 1 to %d", mostInstances))
	}
	if t.Locals < 0 || t.Locals > mostInstances {
		p.add(path+".locals", fmt.Sprintf("%d instances of a zone", t.Locals), fmt.Sprintf("use 1 to %d", mostInstances))
	}
	if t.Election < 0 || t.Election > time.Minute {
		p.add(path+".election", fmt.Sprintf("an election that takes %v", t.Election), "use 0s to 1m")
	}
	for i, name := range t.Nodes {
		if !slices.ContainsFunc(fleet, func(g Group) bool { return g.Region == name }) || slices.Contains(t.Nodes[:i], name) {
			p.add(fmt.Sprintf("%s.nodes[%d]", path, i), fmt.Sprintf("a global node in %q", name), "name regions of the fleet, each once", "$.fleet[*].region")
		}
	}
}

// instances is how many of those there are that a fault may take one of.
func (t *Tiers) instances(k sim.Kind) int {
	switch k {
	case sim.GatewayDead:
		return max(t.Gateways, 1)
	case sim.LocalDead:
		return max(t.Locals, 1)
	}
	return 1
}
