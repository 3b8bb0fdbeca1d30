package soak

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/chaos/drill"
	"github.com/spillway-lb/spillway/chaos/fault"
	"github.com/spillway-lb/spillway/chaos/fleet"
)

// drillMaker draws one random drill.
type drillMaker struct {
	rng   *rand.Rand
	file  *drill.DrillFile
	nodes []fleet.Node
	lost  int // regions that a step takes away: one is always left
	taken map[string]bool
}

// MakeDrill returns the random drill of a seed. Restarted workers serve at once: loading weights takes longer than
// drill.RecoveryTime, so that a fleet that lost all its workers would break I-31 without a defect. Drill cold-herd has cold starts.
func MakeDrill(seed uint64) *drill.DrillFile {
	rng := rand.New(rand.NewPCG(seed, 0x50a4))
	m := &drillMaker{rng: rng, taken: map[string]bool{}, file: &drill.DrillFile{
		Name: fmt.Sprintf("soak-%d", seed), Title: fmt.Sprintf("Random faults of seed %d", seed),
		Hypothesis: []string{"Every invariant of the soak holds under any faults."},
		Fleet:      drill.FleetShape{Regions: 2 + rng.IntN(2), Zones: 1 + rng.IntN(2), Workers: 2, Gateways: 1 + rng.IntN(2), Locals: 1 + rng.IntN(2)},
		Load:       drill.LoadShape{Rate: float64(2 + rng.IntN(5)), WarmUp: warmUp, PromptTokens: 200, AnswerTokens: 10 + rng.IntN(40), Seed: 1},
		SLO:        drill.SLOTarget{TTFT: 2 * time.Second, TPOT: 100 * time.Millisecond},
	}}
	f := m.file
	f.Fleet.Globals = f.Fleet.Regions // the simulator has one global node in a region
	if rng.IntN(3) == 0 {
		f.Load.Prefixes, f.Load.PrefixTokens = 3, 100
	}
	if rng.IntN(3) == 0 {
		f.Load.Nightly = .3
	}
	m.nodes = f.Layout().BuildNodes()
	for n := 1 + rng.IntN(maxFaults); len(f.Steps) < n; {
		m.addStep()
	}
	f.Load.Duration = f.LastClear() + drill.RecoveryTime + measuredAfter
	return f
}

// addStep adds a random step, unless its target already has one: two causes of one state are another drill's subject.
func (m *drillMaker) addStep() {
	s := m.drawStep()
	key := string(s.Scope) + " " + s.Target
	if s.Kind == "" || m.taken[key] {
		return
	}
	m.taken[key] = true
	s.At = firstFault + m.drawTime(0, faultSpread)
	s.For = m.drawTime(shortestFault, longestFault)
	m.file.Steps = append(m.file.Steps, s)
}

// drawTime draws a time in steps of 100 ms, which files write without loss.
func (m *drillMaker) drawTime(low, high time.Duration) time.Duration {
	const unit = 100 * time.Millisecond
	return low + unit*time.Duration(m.rng.IntN(int((high-low)/unit)+1))
}

// drawNode draws a node of a role.
func (m *drillMaker) drawNode(role string) fleet.Node {
	var list []fleet.Node
	for _, n := range m.nodes {
		if n.Role == role {
			list = append(list, n)
		}
	}
	return list[m.rng.IntN(len(list))]
}

// stepMakers draw the kinds of steps, each as often as the others.
var stepMakers = []func(*drillMaker) drill.Step{
	(*drillMaker).drawWorkerFault, (*drillMaker).drawWorkerFault, (*drillMaker).drawInstanceDeath, (*drillMaker).drawZoneDeath, (*drillMaker).drawRegionDeath,
	(*drillMaker).drawGlobalFault, (*drillMaker).drawGlobalFault, (*drillMaker).drawPartition, (*drillMaker).drawPartition, (*drillMaker).drawDrain, (*drillMaker).drawSurge,
}

func (m *drillMaker) drawStep() drill.Step { return stepMakers[m.rng.IntN(len(stepMakers))](m) }

func (m *drillMaker) drawWorkerFault() drill.Step {
	kinds := []fault.Kind{fault.WorkerDead, fault.WorkerStalled, fault.WorkerSlow, fault.WorkerOOM, fault.WorkerSpot, fault.WorkerColdStart, fault.WorkerTrickle}
	s := drill.Step{Kind: kinds[m.rng.IntN(len(kinds))], Scope: fault.ScopeWorker, Target: m.ownNode("worker")}
	if s.Kind == fault.WorkerSlow {
		s.Params = map[string]string{"factor": fmt.Sprint(2 + m.rng.IntN(20))}
	}
	return s
}

// ownNode draws a node by its name.
func (m *drillMaker) ownNode(role string) string {
	n := m.drawNode(role)
	return n.ID()
}

// drawInstanceDeath draws the death of a gateway or a local instance.
func (m *drillMaker) drawInstanceDeath() drill.Step {
	if m.rng.IntN(2) == 0 {
		return drill.Step{Kind: fault.GatewayDead, Scope: fault.ScopeNode, Target: m.ownNode("regional")}
	}
	return drill.Step{Kind: fault.LocalDead, Scope: fault.ScopeNode, Target: m.ownNode("local")}
}

func (m *drillMaker) drawZoneDeath() drill.Step {
	n := m.drawNode("local")
	return drill.Step{Kind: fault.ZoneDead, Scope: fault.ScopeZone, Target: n.Region + "/" + n.Zone}
}

// canLoseRegion reports whether a region is left if one more is lost, and counts it.
func (m *drillMaker) canLoseRegion() bool {
	m.lost++
	return m.lost < m.file.Fleet.Regions
}

func (m *drillMaker) drawRegionDeath() drill.Step {
	if !m.canLoseRegion() {
		return drill.Step{}
	}
	return drill.Step{Kind: fault.RegionDead, Scope: fault.ScopeRegion, Target: m.drawRegion()}
}

func (m *drillMaker) drawRegion() string {
	names := m.file.RegionNames()
	return names[m.rng.IntN(len(names))]
}

func (m *drillMaker) drawGlobalFault() drill.Step {
	switch m.rng.IntN(5) {
	case 0:
		return drill.Step{Kind: fault.GlobalDead}
	case 1, 2:
		return drill.Step{Kind: fault.LeaderDead}
	case 3:
		return drill.Step{Kind: fault.ProcessPause, Scope: fault.ScopeNode, Target: m.ownNode("global")}
	}
	return drill.Step{Kind: fault.ProcessKill, Scope: fault.ScopeNode, Target: m.ownNode("global")}
}

func (m *drillMaker) drawPartition() drill.Step {
	region := m.drawRegion()
	if m.rng.IntN(6) == 0 {
		return drill.Step{Kind: drill.DNSPartition, Scope: fault.ScopeRegion, Target: region}
	}
	s := drill.Step{Kind: fault.Partition, Scope: fault.ScopeRegion, Target: region, Params: map[string]string{}}
	if class := []string{"", "raft", "uplink", "peer", "uplink+raft"}[m.rng.IntN(5)]; class != "" {
		s.Params["class"] = class
	}
	if direction := []string{"", "in", "out"}[m.rng.IntN(3)]; direction != "" {
		s.Params["direction"] = direction
	}
	if m.rng.IntN(4) == 0 {
		s.Params["from"] = "global"
	}
	return s
}

func (m *drillMaker) drawDrain() drill.Step {
	s := drill.Step{Kind: drill.DrainKind, Params: map[string]string{}}
	switch m.rng.IntN(3) {
	case 0:
		if !m.canLoseRegion() {
			return drill.Step{}
		}
		s.Scope, s.Target = fault.ScopeRegion, m.drawRegion()
	case 1:
		n := m.drawNode("local")
		s.Scope, s.Target = fault.ScopeZone, n.Region+"/"+n.Zone
	default:
		s.Scope, s.Target = fault.ScopeWorker, m.ownNode("worker")
	}
	if m.rng.IntN(2) == 0 {
		s.Params["over"] = "2s"
	}
	return s
}

func (m *drillMaker) drawSurge() drill.Step {
	tenants := []string{"acme"}
	if m.file.Load.Nightly > 0 {
		tenants = append(tenants, "nightly")
	}
	return drill.Step{Kind: drill.SurgeKind, Scope: drill.ScopeTenant, Target: tenants[m.rng.IntN(len(tenants))], Params: map[string]string{"factor": fmt.Sprint(2 + m.rng.IntN(4))}}
}
