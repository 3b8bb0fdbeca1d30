package drill

import (
	"slices"
	"strings"
	"time"
)

// ladderBuilder measures the rungs of one run.
type ladderBuilder struct {
	file         *DrillFile
	log          *EventLog
	fault, clear time.Duration
	requests     []*requestRecord
}

// isAlarm reports whether an event shows that an observer has noticed a loss.
func isAlarm(e *Event) bool {
	switch e.Kind {
	case RegionState:
		return e.Text != "reporting" && e.Text != "unknown"
	case WorkerState:
		return e.Text != "ready"
	case LeaderChanged:
		return true
	}
	return false
}

func (b *ladderBuilder) addDetections(out *Ladder) {
	first := Rung{Name: RungDetected, Title: "first detection by an observer in the fleet", Missing: "no observer reported a change"}
	if !b.log.CanObserve(RegionState) && !b.log.CanObserve(WorkerState) {
		first.Missing = "not observable here"
	}
	seen := map[string]bool{}
	for i := range b.log.Events {
		e := &b.log.Events[i]
		who := e.Node
		if e.Kind == LeaderChanged {
			who = "Raft"
		}
		if e.At < b.fault || e.At >= b.clear || !isAlarm(e) || seen[who] {
			continue
		}
		seen[who] = true
		title := strings.TrimSpace(e.Target + " " + e.Text)
		if e.Kind == LeaderChanged {
			if title = "no leader"; e.Node != "" {
				title = "leader " + e.Node
			}
		}
		r := Rung{Name: RungDetected, Title: title, Node: who, Seconds: (e.At - b.fault).Seconds(), Reached: true}
		if len(out.Observers) == 0 {
			first = r
			first.Title = "first detection: " + title
		}
		out.Observers = append(out.Observers, r)
	}
	out.Rungs = append(out.Rungs, first)
}

// addElection adds when a leader was known again after it was lost in the fault.
func (b *ladderBuilder) addElection(out *Ladder) {
	r := Rung{Name: RungElected, Title: "a leader is known again", Missing: "does not apply: no leader was lost"}
	if !b.log.CanObserve(LeaderChanged) {
		r.Missing = "not observable here"
	}
	lost, ok := b.log.findFirst(LeaderChanged, b.fault, func(e *Event) bool { return e.At < b.clear })
	if ok {
		r.Missing = "not before the end of the run"
		if e, ok := b.log.findFirst(LeaderChanged, lost.At, func(e *Event) bool { return e.Node != "" }); ok {
			r.Seconds, r.Reached, r.Missing, r.Node = (e.At - b.fault).Seconds(), true, "", e.Node
		}
	}
	out.Rungs = append(out.Rungs, r)
}

func (b *ladderBuilder) addDecision(out *Ladder) {
	r := Rung{Name: RungDecided, Title: "first plan of a later epoch in force", Missing: "no plan was made while the fault lasted"}
	var epoch uint64
	for i := range b.log.Events {
		if e := &b.log.Events[i]; e.Kind == PlanApplied && e.At < b.fault {
			epoch = max(epoch, e.Number)
		}
	}
	switch e, ok := b.log.findFirst(PlanApplied, b.fault, func(e *Event) bool { return e.Number > epoch && e.At < b.clear }); {
	case ok:
		r.Seconds, r.Reached, r.Missing, r.Node = (e.At - b.fault).Seconds(), true, "", e.Node
	case !b.log.CanObserve(PlanApplied):
		r.Missing = "not observable here"
	}
	out.Rungs = append(out.Rungs, r)
}

// addAnswers adds when the first and the last node answered without the broken regions for the rest of the fault.
func (b *ladderBuilder) addAnswers(out *Ladder) {
	first := Rung{Name: RungFirstNode, Title: "first global node answers without what is broken"}
	last := Rung{Name: RungDNS, Title: "last global node answers without what is broken"}
	broken := brokenRegions(b.file)
	wrongUntil, asked := map[string]time.Duration{}, map[string]bool{}
	down := downTimes(b.log)
	for i := range b.log.Events {
		e := &b.log.Events[i]
		if e.Kind != DNSAnswered || e.At < b.fault || e.At >= b.clear || down.isDown(e.Node, e.At) {
			continue
		}
		asked[e.Node] = true
		if slices.Contains(broken, e.Target) {
			wrongUntil[e.Node] = e.At
			delete(asked, e.Node) // until a later answer shows that it is right
		}
	}
	switch {
	case len(broken) == 0:
		first.Missing, last.Missing = notApplicable, notApplicable
	case !b.log.CanObserve(DNSAnswered):
		first.Missing, last.Missing = "not observable here", "not observable here"
	default:
		b.fillAnswers(&first, &last, wrongUntil, asked)
	}
	out.Rungs = append(out.Rungs, first, last)
}

func (b *ladderBuilder) fillAnswers(first, last *Rung, wrongUntil map[string]time.Duration, right map[string]bool) {
	for node := range wrongUntil {
		if !right[node] {
			last.Missing = node + " named it until the fault was cleared"
		}
	}
	least, most := time.Duration(-1), time.Duration(-1)
	for _, node := range sortedKeys(right) {
		at := b.fault // it never named what is broken
		if wrong, ok := wrongUntil[node]; ok {
			e, ok := b.log.findFirst(DNSAnswered, wrong+1, func(e *Event) bool { return e.Node == node })
			if !ok {
				continue
			}
			at = e.At
		}
		if least < 0 || at < least {
			least, first.Node = at, node
		}
		if at > most {
			most, last.Node = at, node
		}
	}
	if least < 0 {
		first.Missing, last.Missing = "no node answered", "no node answered"
		return
	}
	first.Seconds, first.Reached = (least - b.fault).Seconds(), true
	if last.Missing == "" {
		last.Seconds, last.Reached = (most - b.fault).Seconds(), true
	}
}

func sortedKeys(m map[string]bool) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// addResolvers adds when the clients of each resolver were sent elsewhere.
func (b *ladderBuilder) addResolvers(out *Ladder) {
	broken := brokenRegions(b.file)
	for _, kind := range []struct{ rung, prefix, title string }{
		{RungClients, ResolverKeeps, "clients of a resolver that keeps TTLs are sent elsewhere"},
		{RungHolders, ResolverHolds, "clients of a resolver that holds answers are sent elsewhere"},
	} {
		r := Rung{Name: kind.rung, Title: kind.title}
		switch {
		case len(broken) == 0:
			r.Missing = notApplicable
		case !b.log.CanObserve(ResolverAnswered):
			r.Missing = "not observable here"
		default:
			b.fillResolver(&r, kind.prefix, broken)
		}
		out.Rungs = append(out.Rungs, r)
	}
}

// Beginnings of the names of resolvers.
const (
	ResolverKeeps = "keeps"
	ResolverHolds = "holds"
)

func (b *ladderBuilder) fillResolver(r *Rung, prefix string, broken []string) {
	at := map[string]*Event{} // last answer before the fault, by region of the client
	for i := range b.log.Events {
		e := &b.log.Events[i]
		if e.Kind == ResolverAnswered && e.At < b.fault && strings.HasPrefix(e.Node, prefix) {
			at[e.Text] = e
		}
	}
	r.Reached = true
	for region, e := range at {
		if !slices.Contains(broken, e.Target) {
			continue
		}
		next, ok := b.log.findFirst(ResolverAnswered, b.fault, func(n *Event) bool {
			return strings.HasPrefix(n.Node, prefix) && n.Text == region && !slices.Contains(broken, n.Target) && n.At < b.clear
		})
		if !ok {
			r.Reached, r.Missing, r.Node = false, "not before the fault was cleared", region
			return
		}
		if s := (next.At - b.fault).Seconds(); s >= r.Seconds {
			r.Seconds, r.Node = s, region
		}
	}
}

// Goodput is back when the share of requests that met the SLO in each window of goodputWindow is at most goodputLoss
// below the one before the fault, for the rest of the fault. The same figures as in chaos/experiment.
const (
	goodputWindow = 3 * time.Second
	goodputLoss   = 0.05
)

// goodputBack is when goodput is back for good between two times; false: it is not.
func (b *ladderBuilder) goodputBack(from, to time.Duration) (time.Duration, bool) {
	metric, _ := findMetric("goodput")
	before, ok := metric.measure(phaseRequests(b.file, b.requests, Slice{}, PhaseBefore))
	if !ok {
		return 0, false
	}
	back, reached := from, true
	for at := from; at < to; at += time.Second {
		end := min(at+goodputWindow, to)
		v, ok := metric.measure(selectRequests(b.requests, Slice{}, at, end))
		if ok && v < before-goodputLoss {
			back, reached = end, end < to
		}
	}
	return back, reached
}

func (b *ladderBuilder) addGoodput(out *Ladder) {
	r := Rung{Name: RungSLO, Title: "goodput is back while the fault lasts"}
	if at, ok := b.goodputBack(b.fault, b.clear); ok {
		r.Seconds, r.Reached = (at - b.fault).Seconds(), true
	} else {
		r.Missing = "not before the fault was cleared"
	}
	out.Rungs = append(out.Rungs, r)
}

func (b *ladderBuilder) addClearing(out *Ladder) {
	r := Rung{Name: RungCleared, Title: "every fault is cleared, and probes verify it", Missing: "a clearing was not verified"}
	verified := map[uint64]time.Duration{}
	for i := range b.log.Events {
		if e := &b.log.Events[i]; e.Kind == FaultVerified {
			verified[e.Number] = e.At
		}
	}
	injected, at := map[uint64]bool{}, time.Duration(0)
	for i := range b.log.Events {
		if e := &b.log.Events[i]; e.Kind == FaultInjected {
			injected[e.Number] = true
		}
	}
	for n := range injected {
		end, ok := verified[n]
		if !ok {
			out.Rungs = append(out.Rungs, r)
			return
		}
		at = max(at, end)
	}
	if len(injected) > 0 {
		r.Seconds, r.Reached, r.Missing = (at - b.fault).Seconds(), true, ""
	}
	out.Rungs = append(out.Rungs, r)
}

// addNormal adds when all nodes serve one epoch and goodput is back after the last clearing.
func (b *ladderBuilder) addNormal(out *Ladder) {
	r := Rung{Name: RungNormal, Title: "after the clearing: nodes agree and goodput is back"}
	at, ok := b.goodputBack(b.clear, b.file.Load.Duration)
	if b.clear >= b.file.Load.Duration {
		ok = false
	}
	agreed := max(lastBehind(b.log, b.clear, b.file.Load.Duration), b.clear)
	if ok {
		r.Seconds, r.Reached = (max(at, agreed) - b.clear).Seconds(), true
	} else {
		r.Missing = "not before the end of the run"
	}
	out.Rungs = append(out.Rungs, r)
}
