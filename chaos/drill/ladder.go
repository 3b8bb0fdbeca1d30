package drill

import (
	"fmt"
	"slices"

	"github.com/spillway-lb/spillway/chaos/fault"
)

// The rungs of the recovery ladder that files bound by `rto`.
const (
	// RungDetected: the first observer has the target as something other than healthy.
	RungDetected = "detected"
	// RungElected: a leader is known again after the fault took it away, so that writes succeed.
	RungElected = "elected"
	// RungDecided: the first plan of a later epoch is in force at a node.
	RungDecided = "decided"
	// RungFirstNode and RungDNS: the first, and the last, global node answers without what is broken.
	RungFirstNode = "first-node"
	RungDNS       = "dns"
	// RungClients: the clients of a resolver that keeps TTLs are sent elsewhere. RungHolders: those of one that holds answers longer.
	RungClients = "clients"
	RungHolders = "holders"
	// RungSLO: goodput is back, while the fault lasts.
	RungSLO = "slo"
	// RungCleared: the last fault is cleared and that is verified. RungNormal counts from there: nodes agree and goodput is
	// back.
	RungCleared = "cleared"
	RungNormal  = "normal"
)

// RungNames lists the rungs in order.
func RungNames() []string {
	return []string{RungDetected, RungElected, RungDecided, RungFirstNode, RungDNS, RungClients, RungHolders, RungSLO, RungCleared, RungNormal}
}

// Rung is a step of the recovery, measured from outside.
type Rung struct {
	Name string `json:"name"`
	// Title says in words what happened.
	Title string `json:"title"`
	// Seconds since the fault, for RungNormal since the last clearing. Valid if Reached.
	Seconds float64 `json:"seconds"`
	Reached bool    `json:"reached"`
	// Missing is why it was not reached; empty for reached ones.
	Missing string `json:"missing,omitempty"`
	// Node is who was first, or last.
	Node string `json:"node,omitempty"`
}

// String is the rung as a line.
func (r *Rung) String() string {
	out := fmt.Sprintf("%-10s  %s: %s", r.Name, r.Title, r.describeTime())
	if r.Reached && r.Node != "" {
		out += " (" + r.Node + ")"
	}
	return out
}

// describeTime is when the rung was reached, or why not.
func (r *Rung) describeTime() string {
	if !r.Reached {
		return r.Missing
	}
	return fmt.Sprintf("%.1f s", r.Seconds)
}

// Ladder is the recovery of a run, with the first detection by each observer.
type Ladder struct {
	Rungs     []Rung `json:"rungs"`
	Observers []Rung `json:"observers,omitempty"`
}

// FindRung returns a rung by name.
func (l *Ladder) FindRung(name string) *Rung {
	i := slices.IndexFunc(l.Rungs, func(r Rung) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return &l.Rungs[i]
}

// brokenRegions are the regions that DNS answers must leave while steps are active: lost, drained, or cut off.
func brokenRegions(f *DrillFile) (out []string) {
	for i := range f.Steps {
		s := &f.Steps[i]
		if takesRegionAway(s) && !slices.Contains(out, s.Target) {
			out = append(out, s.Target)
		}
	}
	return out
}

// takesRegionAway reports whether DNS answers must leave the step's region while it is active.
func takesRegionAway(s *Step) bool {
	return s.Scope == fault.ScopeRegion && (s.Kind == fault.RegionDead || s.Kind == DrainKind || s.Kind == fault.GatewayDead || silencesRegion(s))
}

// silencesRegion reports whether a step cuts the reports of a region from all global nodes, and not its clients from it.
func silencesRegion(s *Step) bool {
	from := s.Params["from"]
	return s.Kind == fault.Partition && s.Params["class"] == "uplink" && s.Params["direction"] != fault.DirectionIn && (from == "" || from == "global")
}

const notApplicable = "does not apply: the fault takes no region from the answers"

// BuildLadder measures the recovery of a run.
func BuildLadder(f *DrillFile, l *EventLog) *Ladder {
	b := &ladderBuilder{file: f, log: l, fault: f.FirstFault(), clear: f.LastClear(), requests: collectRequests(l)}
	if at, ok := l.findFirst(FaultInjected, 0, nil); ok {
		b.fault = at.At
	}
	for i := range l.Events {
		if l.Events[i].Kind == FaultCleared {
			b.clear = l.Events[i].At
		}
	}
	out := &Ladder{}
	b.addDetections(out)
	b.addElection(out)
	b.addDecision(out)
	b.addAnswers(out)
	b.addResolvers(out)
	b.addGoodput(out)
	b.addClearing(out)
	b.addNormal(out)
	return out
}
