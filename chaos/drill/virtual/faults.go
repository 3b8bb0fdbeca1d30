package virtual

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/drill"
	"github.com/spillway-lb/spillway/chaos/fault"
	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/chaos/sim"
)

// builtFault is a fault of the simulator and the step that it belongs to.
type builtFault struct {
	sim.Fault
	step int
}

// faultBuilder maps the steps of a drill to faults of the simulator.
type faultBuilder struct {
	file  *drill.DrillFile
	nodes []fleet.Node
	// globals are the names of the global nodes, in the simulator's order.
	globals []string
	out     []builtFault
	notes   []string
}

// buildFaults maps all steps. The error names the first step that the simulator cannot carry.
func buildFaults(f *drill.DrillFile) (*faultBuilder, error) {
	b := &faultBuilder{file: f, nodes: f.Layout().BuildNodes()}
	for _, n := range b.nodes {
		if n.Role == "global" {
			b.globals = append(b.globals, n.ID())
		}
	}
	for i := range f.Steps {
		if err := b.addStep(i, &f.Steps[i]); err != nil {
			return nil, fmt.Errorf("step %d (%s) cannot run in the simulator: %w", i+1, &f.Steps[i], err)
		}
	}
	return b, nil
}

// Unsupported is why the simulator cannot carry a drill; empty: it can.
func Unsupported(f *drill.DrillFile) string {
	if f.LiveOnly != "" {
		return f.LiveOnly
	}
	if _, err := buildFaults(f); err != nil {
		return err.Error()
	}
	return ""
}

func (b *faultBuilder) addNote(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(b.notes, text) {
		b.notes = append(b.notes, text)
	}
}

// addFault adds a fault with the times of its step.
func (b *faultBuilder) addFault(step int, s *drill.Step, f sim.Fault) {
	f.At, f.For = s.At, s.For
	if s.Params["restart"] == "no" {
		f.For = 0
	}
	f.Store = b.file.Fleet.WeightsGBps
	b.out = append(b.out, builtFault{f, step})
}

func (b *faultBuilder) addStep(i int, s *drill.Step) error {
	switch s.Kind {
	case drill.SurgeKind:
		return nil // part of the load
	case drill.DrainKind:
		return b.addDrain(i, s)
	case fault.RegionDead:
		b.addFault(i, s, sim.Fault{Kind: sim.RegionDead, Region: s.Target})
	case fault.ZoneDead:
		region, zone, _ := strings.Cut(s.Target, "/")
		b.addFault(i, s, sim.Fault{Kind: sim.ZoneDead, Region: region, Zone: zone})
	case fault.GlobalDead:
		b.addFault(i, s, sim.Fault{Kind: sim.GlobalDead})
	case fault.LeaderDead:
		b.addFault(i, s, sim.Fault{Kind: sim.LeaderDead})
	case fault.GatewayDead, fault.LocalDead, fault.ProcessKill, fault.ProcessPause:
		return b.addProcess(i, s)
	case fault.Partition, drill.DNSPartition:
		return b.addPartition(i, s)
	case fault.WorkerDead, fault.WorkerStalled, fault.WorkerHang, fault.WorkerSlow, fault.WorkerThermal, fault.WorkerTrickle, fault.WorkerOOM, fault.WorkerSpot, fault.WorkerColdStart,
		fault.WorkerRefuse, fault.WorkerDieStream:
		return b.addWorkers(i, s)
	default:
		return fmt.Errorf("it has no fault %s", s.Kind)
	}
	return nil
}

func (b *faultBuilder) addDrain(i int, s *drill.Step) error {
	over, err := time.ParseDuration(cmpOr(s.Params["over"], "0s"))
	if err != nil {
		return err
	}
	switch s.Scope {
	case fault.ScopeRegion:
		b.addFault(i, s, sim.Fault{Kind: sim.Drain, Region: s.Target, Over: over})
	case fault.ScopeZone:
		region, zone, _ := strings.Cut(s.Target, "/")
		b.addFault(i, s, sim.Fault{Kind: sim.Drain, Region: region, Zone: zone, Over: over})
	default:
		return b.eachWorker(s, func(n fleet.Node, at int) {
			b.addFault(i, s, sim.Fault{Kind: sim.Drain, Region: n.Region, Zone: n.Zone, Worker: at, Workers: 1, Over: over})
		})
	}
	return nil
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// addProcess adds the death or pause of nodes above the workers.
func (b *faultBuilder) addProcess(i int, s *drill.Step) error {
	if s.Kind == fault.ProcessPause {
		if s.Target != "leader" && !slices.Contains(b.globals, s.Target) {
			return fmt.Errorf("it pauses global nodes only, because other nodes lose their state in it")
		}
		b.addNote("a pause of a global node is a loss of its links: it keeps its state")
	}
	if s.Target == "leader" {
		b.addFault(i, s, sim.Fault{Kind: sim.LeaderDead})
		return nil
	}
	found := false
	for _, n := range b.nodes {
		byRegion := s.Scope == fault.ScopeRegion && n.Region == s.Target && (s.Kind != fault.GatewayDead || n.Role == "regional")
		byNode := s.Scope == fault.ScopeNode && len(drill.MatchTargets(s.Target, []string{n.ID()})) > 0
		if !byRegion && !byNode {
			continue
		}
		found = true
		switch n.Role {
		case "global":
			b.addFault(i, s, sim.Fault{Kind: sim.GlobalNodeDead, Instance: slices.Index(b.globals, n.ID())})
		case "regional":
			b.addFault(i, s, sim.Fault{Kind: sim.GatewayDead, Region: n.Region, Instance: trailingNumber(n.Name) - 1})
		case "local":
			b.addFault(i, s, sim.Fault{Kind: sim.LocalDead, Region: n.Region, Zone: n.Zone, Instance: trailingNumber(n.Name) - 1})
		default:
			b.addFault(i, s, sim.Fault{Kind: sim.WorkerDead, Region: n.Region, Zone: n.Zone, Worker: trailingNumber(n.Name) - 1})
		}
	}
	if !found {
		return fmt.Errorf("it has no node %q", s.Target)
	}
	return nil
}

// trailingNumber is the number at the end of a node's name, 1 without one.
func trailingNumber(name string) int {
	digits := name[len(strings.TrimRight(name, "0123456789")):]
	if n, err := strconv.Atoi(digits); err == nil && n > 0 {
		return n
	}
	return 1
}

// trafficOfClass is the simulator's traffic of a class of links, by direction as seen from the region.
func trafficOfClass(class, direction string) ([]sim.Traffic, error) {
	var out []sim.Traffic
	for _, c := range strings.Split(class, "+") {
		switch c {
		case "uplink":
			if direction != fault.DirectionIn {
				out = append(out, sim.SummaryTraffic)
			}
			if direction != fault.DirectionOut {
				out = append(out, sim.DirectiveTraffic)
			}
		case "raft":
			out = append(out, sim.RaftTraffic)
		case "peer", "http":
			out = append(out, sim.RequestTraffic)
		default:
			return nil, fmt.Errorf("it has no links of class %q between regions", c)
		}
	}
	return out, nil
}

func (b *faultBuilder) addPartition(i int, s *drill.Step) error {
	f := sim.Fault{Kind: sim.Partition, Region: s.Target, From: s.Params["from"]}
	if i := slices.Index(b.globals, f.From); i >= 0 {
		if c := s.Params["class"]; c != "uplink" && c != "raft" {
			return fmt.Errorf("it cuts only uplinks or Raft links from one global node: a node has the other links of its region")
		}
		f.From = nodeRegions(b.file)[i]
	}
	direction := cmpOr(s.Params["direction"], fault.DirectionBoth)
	switch {
	case s.Kind == drill.DNSPartition:
		f.Only = []sim.Traffic{sim.DNSTraffic}
	case s.Params["class"] != "":
		only, err := trafficOfClass(s.Params["class"], direction)
		if err != nil {
			return err
		}
		f.Only = only
		if s.Params["class"] == "uplink" && f.From == "" {
			f.From = "global"
		}
	case direction != fault.DirectionBoth:
		only, err := trafficOfClass("uplink+raft+peer", direction)
		if err != nil {
			return err
		}
		f.Only = only
		b.addNote("a one-way partition cuts the reports or the directives of one way, and Raft and requests both ways, because those need both")
	}
	b.addFault(i, s, f)
	return nil
}

// eachWorker calls a function for every worker that a step is aimed at, with its index in its zone.
func (b *faultBuilder) eachWorker(s *drill.Step, add func(n fleet.Node, at int)) error {
	found := false
	for _, n := range b.nodes {
		if n.Role != "worker" {
			continue
		}
		hit := false
		switch s.Scope {
		case fault.ScopeWorker:
			hit = len(drill.MatchTargets(s.Target, []string{n.ID()})) > 0
		case fault.ScopeZone:
			hit = n.Region+"/"+n.Zone == s.Target
		case fault.ScopeRegion:
			hit = n.Region == s.Target
		}
		if g := s.Params["gpu"]; hit && g != "" && !strings.HasPrefix(n.GPU, g) {
			hit = false
		}
		if hit {
			found = true
			add(n, trailingNumber(n.Name)-1)
		}
	}
	if !found {
		return fmt.Errorf("no worker of the fleet is meant")
	}
	return nil
}

// trickleFactor makes a worker give about one token a second: a step takes 10 to 30 ms.
const trickleFactor = 50

// spotNotice is how long a spot instance is warned of its end.
const spotNotice = 30 * time.Second

func (b *faultBuilder) addWorkers(i int, s *drill.Step) error {
	f := sim.Fault{Kind: sim.WorkerDead}
	switch s.Kind {
	case fault.WorkerStalled, fault.WorkerHang:
		f.Kind = sim.WorkerStalled
	case fault.WorkerSlow, fault.WorkerThermal:
		f.Kind = sim.WorkerSlow
		in, _ := fault.FindKind(s.Kind)
		text := s.Params["factor"]
		for _, q := range in.Params {
			if q.Name == "factor" && text == "" {
				text = q.Default
			}
		}
		factor, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("factor %q: %w", text, err)
		}
		f.Factor = factor
	case fault.WorkerTrickle:
		f.Kind, f.Factor = sim.WorkerSlow, trickleFactor
		b.addNote("one token a second is a slow-down by %d", trickleFactor)
	case fault.WorkerRefuse:
		f.Kind = sim.WorkerRefuses
	case fault.WorkerDieStream:
		share, err := strconv.ParseFloat(cmpOr(s.Params["share"], "1"), 64)
		if err != nil {
			return fmt.Errorf("share %q: %w", s.Params["share"], err)
		}
		after, err := strconv.Atoi(cmpOr(s.Params["after_tokens"], "1"))
		if err != nil {
			return fmt.Errorf("after_tokens %q: %w", s.Params["after_tokens"], err)
		}
		f.Kind, f.Share, f.AfterTokens = sim.WorkerCuts, share, after
	case fault.WorkerOOM:
		b.addNote("running out of memory is the death of the worker's process")
	case fault.WorkerSpot:
		b.addNote("a spot notice is a death without use of the notice of %s", spotNotice)
	case fault.WorkerColdStart:
		b.addNote("a cold start is a death, after which the weights are loaded")
	}
	return b.eachWorker(s, func(n fleet.Node, at int) {
		w := f
		w.Region, w.Zone, w.Worker, w.Workers = n.Region, n.Zone, at, 1
		b.addFault(i, s, w)
	})
}
