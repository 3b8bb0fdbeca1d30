package sim

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/spillway-lb/spillway/global/snapshot"
)

// ObservationKind is the kind of an observation.
type ObservationKind uint8

// The kinds of observations. The comment of each names the fields that it sets.
const (
	// RequestDue: Request, Target (region of its client), Text (tenant), Number (tokens of its answer).
	RequestDue ObservationKind = iota
	// AttemptStarted: Request, Node (worker), Number (tokens of the answer by earlier workers), Value (seconds since it was due).
	AttemptStarted
	// FirstToken of an attempt: Request, Node (worker).
	FirstToken
	// RequestEnded: Request, Node (its last worker), Text (ok, refused, cut or unfinished), Code, TTFT, TPOT, Good, Number
	// (tokens received).
	RequestEnded
	// FaultInjected and FaultCleared: Number (index of the fault).
	FaultInjected
	FaultCleared
	// PlanApplied: Node (global node), Number (epoch), Text (hash of the plan).
	PlanApplied
	// LeaderChanged: Node (the leader; empty: there is none).
	LeaderChanged
	// RegionStateChanged: Node (global node that observes), Target (region), Text (state).
	RegionStateChanged
	// SummaryAge: Node (global node), Target (region), Value (seconds). Once a second.
	SummaryAge
	// DNSAnswered: Node (global node), Text (region of the client), Target (region in the answer), Number (epoch), Value
	// (TTL in seconds), Count (equal answers since the previous observation). At a change, and once a second.
	DNSAnswered
	// DNSFailed: Node (global node that is up and gave no answer), Text (region of the client).
	DNSFailed
	// NodeStateChanged: Node (global node), Text (up or down).
	NodeStateChanged
	// ResolverAnswered: Node (resolver: KeepsTTL or HoldsAnswers), Text (region of the client), Target (region in its
	// answer; empty: none). At a change.
	ResolverAnswered
	// CacheUsage: Node (the worker with the fullest cache), Number (its used blocks), Value (its blocks), Count (workers).
	CacheUsage
)

// Observation is one observation of a run.
type Observation struct {
	At                 time.Duration
	Kind               ObservationKind
	Node, Target, Text string
	Code               string
	Request, Number    uint64
	Value, TTFT, TPOT  float64 // seconds
	Count              int
	Good               bool // met the SLO
}

// Names of the two resolvers that query for clients of each region.
const (
	KeepsTTL     = "keeps TTLs"
	HoldsAnswers = "holds answers 60 s"
)

const (
	observeInterval = int64(100 * time.Millisecond)
	// longHold is the minimum time of resolvers and runtimes that ignore short TTLs; 60 s is common.
	longHold = 60 * time.Second
)

// observer passes what happens in a run to Scenario.OnObservation. It changes nothing in the run.
type observer struct {
	scenario *Scenario
	faults   *faultStates
	loop     *eventLoop
	topology *topology
	global   *globalTier
	requests *requestTable
	reader   *requestReader

	probeCount   int
	leader       *globalNode
	hadLeader    bool
	nodeDown     map[int32]bool
	regionStates map[[2]int32]snapshot.Reachability // by node and region
	answers      map[[2]int32]*probedAnswer         // by node and region of the client
	resolvers    map[resolverKey]*resolverState
}

// probedAnswer is the last answer of a node to the clients of a region.
type probedAnswer struct {
	region int32
	epoch  uint64
	count  int
}

type resolverKey struct {
	region int32
	holds  bool
}

type resolverState struct {
	region    int32 // in its cache; -1: none
	expiresAt int64
}

func (o *observer) isOn() bool { return o.scenario.OnObservation != nil }

func (o *observer) emit(n Observation) {
	if n.At == 0 {
		n.At = time.Duration(o.loop.now)
	}
	o.scenario.OnObservation(n)
}

// workerPath is region/zone/worker.
func (w *simulatedWorker) workerPath() string {
	return w.zone.region.name + "/" + w.zone.name + "/" + w.name
}

func (o *observer) recordDue(x *simulatedRequest) {
	if o.isOn() {
		o.emit(Observation{Kind: RequestDue, Request: x.req.ID, Target: o.topology.clientRegion(x.req).name, Text: o.reader.tenantName(x.req.Tenant), Number: uint64(x.req.Output)})
	}
}

func (o *observer) recordAttempt(x *simulatedRequest) {
	if o.isOn() {
		o.emit(Observation{Kind: AttemptStarted, Request: x.req.ID, Node: x.worker.workerPath(), Number: uint64(x.priorTokens), Value: time.Duration(o.loop.now - x.dueAt).Seconds()})
	}
}

func (o *observer) recordFirstToken(x *simulatedRequest) {
	if o.isOn() {
		o.emit(Observation{Kind: FirstToken, Request: x.req.ID, Node: x.worker.workerPath()})
	}
}

func (o *observer) recordAnswer(x *simulatedRequest, ttft, tpot, e2e time.Duration, good bool) {
	if o.isOn() {
		o.emit(Observation{
			At: time.Duration(x.dueAt) + e2e, Kind: RequestEnded, Request: x.req.ID, Node: x.worker.workerPath(), Text: "ok", TTFT: ttft.Seconds(), TPOT: tpot.Seconds(), Good: good,
			Number: uint64(x.req.Output),
		})
	}
}

// recordFailure records a request without a complete answer.
func (o *observer) recordFailure(x *simulatedRequest, outcome, code string) {
	if !o.isOn() {
		return
	}
	n := Observation{Kind: RequestEnded, Request: x.req.ID, Text: outcome, Code: code, Number: uint64(x.priorTokens)}
	if x.worker != nil {
		n.Node = x.worker.workerPath()
	}
	if outcome == "cut" {
		n.TTFT = time.Duration(x.firstTokenAt - x.dueAt).Seconds()
	}
	o.emit(n)
}

func (o *observer) recordFault(i int32, on bool) {
	if !o.isOn() {
		return
	}
	kind := FaultCleared
	if on {
		kind = FaultInjected
	}
	o.emit(Observation{Kind: kind, Number: uint64(i)})
}

func (o *observer) recordPlan(n *globalNode, p agreedPlan) {
	if !o.isOn() {
		return
	}
	text, err := json.Marshal(p.plan)
	if err != nil {
		o.loop.failure = fmt.Errorf("encoding a plan: %w", err)
		return
	}
	h := fnv.New64a()
	h.Write(text)
	o.emit(Observation{Kind: PlanApplied, Node: n.nodeName(), Number: p.epoch, Text: fmt.Sprintf("%016x", h.Sum64())})
}

// startProbes schedules the observer's own queries.
func (o *observer) startProbes() {
	if !o.isOn() {
		return
	}
	o.nodeDown, o.regionStates = map[int32]bool{}, map[[2]int32]snapshot.Reachability{}
	o.answers, o.resolvers = map[[2]int32]*probedAnswer{}, map[resolverKey]*resolverState{}
	o.loop.addEvent(event{at: observeInterval, kind: evObserve})
}

// probeFleet queries every global node for clients of each region, as a monitor outside the fleet would.
func (o *observer) probeFleet() {
	if o.loop.now < int64(o.scenario.Duration) || len(o.requests.active) > 0 {
		o.loop.addEvent(event{at: o.loop.now + observeInterval, kind: evObserve})
	}
	o.probeCount++
	everySecond := o.probeCount%int(int64(time.Second)/observeInterval) == 0
	if everySecond {
		o.recordCacheUsage()
	}
	if !o.global.hasNodes() {
		return
	}
	o.recordLeader()
	for _, n := range o.global.nodes {
		down := !o.global.isUp(n)
		if was, ok := o.nodeDown[n.index]; !ok || was != down {
			o.nodeDown[n.index] = down
			text := "up"
			if down {
				text = "down"
			}
			o.emit(Observation{Kind: NodeStateChanged, Node: n.nodeName(), Text: text})
		}
		if !down {
			o.probeNode(n, everySecond)
		}
	}
	for _, reg := range o.topology.regions {
		o.queryAsResolver(reg, false)
		o.queryAsResolver(reg, true)
	}
}

// recordLeader records a change of the leader, without starting an election.
func (o *observer) recordLeader() {
	p := o.global
	lead := p.electableNode()
	if p.scenario.Steering.ElectionTime > 0 {
		if lead = p.leader; o.loop.now < p.leaderSince || lead != nil && !p.hasMajority(lead) {
			lead = nil
		}
	}
	if o.hadLeader && lead == o.leader {
		return
	}
	o.leader, o.hadLeader = lead, true
	name := ""
	if lead != nil {
		name = lead.nodeName()
	}
	o.emit(Observation{Kind: LeaderChanged, Node: name})
}

// probeNode records the state of each region at a node, and its answer to clients of each region.
func (o *observer) probeNode(n *globalNode, everySecond bool) {
	for _, reg := range o.topology.regions {
		at := n.core.current.RegionIndex(reg.name)
		if at < 0 {
			continue
		}
		seen, key := &n.core.current.Regions[at], [2]int32{n.index, reg.index}
		if was, ok := o.regionStates[key]; !ok || was != seen.State {
			o.regionStates[key] = seen.State
			o.emit(Observation{Kind: RegionStateChanged, Node: n.nodeName(), Target: reg.name, Text: reachabilityText(seen.State)})
		}
		if everySecond && seen.HasReport() {
			o.emit(Observation{Kind: SummaryAge, Node: n.nodeName(), Target: reg.name, Value: seen.Group.Age.Seconds()})
		}
		o.probeAnswer(n, reg, everySecond)
	}
}

// monitorAddr is the index of the observer's resolver in a region: none of the clients' resolvers.
const monitorAddr = 65_535

func (o *observer) probeAnswer(n *globalNode, reg *regionState, everySecond bool) {
	in, ttl := n.core.pickRegion(0, reg.location, resolverAddr(reg.index, monitorAddr))
	to := o.global.regionIndex(in)
	if to < 0 {
		o.emit(Observation{Kind: DNSFailed, Node: n.nodeName(), Text: reg.name})
		return
	}
	key := [2]int32{n.index, reg.index}
	a := o.answers[key]
	if a == nil {
		a = &probedAnswer{region: -1}
		o.answers[key] = a
	}
	a.count++
	if a.region == to && a.epoch == n.planEpoch && !everySecond {
		return
	}
	o.emit(Observation{
		Kind: DNSAnswered, Node: n.nodeName(), Text: reg.name, Target: o.topology.regions[to].name, Number: n.planEpoch, Value: ttl.Seconds(), Count: a.count,
	})
	*a = probedAnswer{region: to, epoch: n.planEpoch}
}

// queryAsResolver resolves the service for clients of a region through a cache of its own.
func (o *observer) queryAsResolver(reg *regionState, holds bool) {
	key := resolverKey{reg.index, holds}
	s := o.resolvers[key]
	if s == nil {
		s = &resolverState{region: -1}
		o.resolvers[key] = s
	} else if o.loop.now < s.expiresAt {
		return
	}
	n := o.global.nearestNode(reg)
	if n == nil {
		return // no answer: the cached one stays in use
	}
	in, ttl := n.core.pickRegion(0, reg.location, resolverAddr(reg.index, monitorAddr))
	to := o.global.regionIndex(in)
	name, target := KeepsTTL, ""
	if holds {
		name, ttl = HoldsAnswers, max(ttl, longHold)
	}
	changed := to != s.region || s.expiresAt == 0
	s.region, s.expiresAt = to, o.loop.now+int64(ttl)
	if !changed {
		return
	}
	if to >= 0 {
		target = o.topology.regions[to].name
	}
	o.emit(Observation{Kind: ResolverAnswered, Node: name, Text: reg.name, Target: target})
}

// recordCacheUsage records the fullest KV cache of all workers.
func (o *observer) recordCacheUsage() {
	var fullest *simulatedWorker
	most, used, blocks := -1.0, 0, 0
	for _, w := range o.topology.workers {
		g := w.engine.Gauges()
		if share := safeRatio(float64(g.KVUsed), float64(g.KVBlocks)); share > most {
			fullest, most, used, blocks = w, share, g.KVUsed, g.KVBlocks
		}
	}
	if fullest != nil {
		o.emit(Observation{Kind: CacheUsage, Node: fullest.workerPath(), Number: uint64(used), Value: float64(blocks), Count: len(o.topology.workers)})
	}
}

// reachabilityText is a region's state in words.
func reachabilityText(s snapshot.Reachability) string {
	switch s {
	case snapshot.Reporting:
		return "reporting"
	case snapshot.Stale:
		return "stale"
	case snapshot.PeersOnly:
		return "reached by peers only"
	case snapshot.SilenceSuppressed:
		return "own links lost"
	case snapshot.LostByMajority:
		return "lost by a majority"
	case snapshot.LostByAll:
		return "lost by all"
	case snapshot.Dead:
		return "dead"
	}
	return "unknown"
}
