package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/baseline"
	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/prefix"
)

// baselineRule is the rule of another system, used instead of Spillway's gateways and schedulers.
type baselineRule uint8

const (
	noBaseline       baselineRule = iota
	ruleSkyWalker                 // selective pushing: to replicas with nothing pending, to peers that have one, else it waits
	ruleBlindPushing              // SkyWalker's balancer without that: every request is pushed at once
	ruleFixedLimit                // with a fixed limit of requests at each replica instead
	ruleGORGO                     // lowest round trip, prefill and own queue; peers' queues cost nothing
	ruleGORGOPriced               // with peers' queues
	rulePrequalPool               // hot and cold, by a pool of asynchronous probes
)

// baselineNames are their policy names.
var baselineNames = [...]string{
	ruleSkyWalker: "skywalker", ruleBlindPushing: "blind_pushing", ruleFixedLimit: "fixed_limit", ruleGORGO: "gorgo", ruleGORGOPriced: "gorgo_priced", rulePrequalPool: "prequal_pool",
}

// PolicyNames are the valid names of a scenario's Policy: those of local/pick, which choose workers below Spillway's
// tiers, then the baselines of chaos/baseline, which replace the tiers.
func PolicyNames() []string { return slices.Concat(spec.WorkerPolicies(), baselineNames[1:]) }

// IsBaseline reports whether a policy replaces Spillway's tiers.
func IsBaseline(policy string) bool { return parseBaseline(policy) != noBaseline }

// CheckPolicy returns an error with the valid names for an unknown one. The empty one is the default.
func CheckPolicy(name string) error {
	if _, err := pick.ParsePolicy(name); err == nil || IsBaseline(name) {
		return nil
	}
	return fmt.Errorf("unknown policy %q: write one of %s", name, strings.Join(PolicyNames(), ", "))
}

func parseBaseline(policy string) baselineRule {
	if i := slices.Index(baselineNames[:], policy); i > 0 {
		return baselineRule(i)
	}
	return noBaseline
}

// baselineTier is the balancers of a baseline, which replace all tiers of Spillway.
type baselineTier struct {
	scenario  *Scenario
	result    *RunResult
	rule      baselineRule
	balancers []*baselineBalancer // by region

	loop     *eventLoop
	topology *topology
	network  *network
	reader   *requestReader
	recorder *recorder
	requests *requestTable
	engines  *workerTier
}

// addBalancers adds a baseline's balancer to each region.
func (bt *baselineTier) addBalancers() {
	for i, reg := range bt.topology.regions {
		p := &baselineBalancer{index: int32(i), region: reg, rule: bt.rule, spillsByPeer: make([]int64, len(bt.topology.regions)), rng: rand.New(rand.NewPCG(bt.scenario.Seed, seedGateways<<32|uint64(i)))}
		p.gorgo.PriceQueues = bt.rule == ruleGORGOPriced
		var kv int64
		for _, z := range reg.zones {
			for _, w := range z.workers {
				p.replicas = append(p.replicas, &balancerTarget{worker: w})
				kv = int64(w.engine.Gauges().KVBlocks) * gpu.BlockTokens
			}
		}
		n := len(p.replicas)
		p.skyWalker = baseline.NewSkyWalker(n, len(bt.topology.regions), baseline.MaxPeerQueue, kv, bytesPerToken)
		p.prequal = baseline.NewPrequal(max(n, 1))
		p.replicaPrefixes, p.peerPrefixes = prefix.NewIndex(bt.prefixTrieBytes()), prefix.NewIndex(bt.prefixTrieBytes())
		for k := range p.replicas {
			p.replicaPrefixes.SetCacheSize(int32(k), kv, bytesPerToken)
		}
		bt.balancers = append(bt.balancers, p)
	}
	for _, p := range bt.balancers {
		for k, o := range bt.balancers {
			p.peerPrefixes.SetCacheSize(int32(k), int64(o.replicaKVTokens())*int64(max(len(o.replicas), 1)), bytesPerToken)
			if o == p || bt.scenario.IsolateRegions {
				p.peers = append(p.peers, nil)
				continue
			}
			p.peers = append(p.peers, &balancerTarget{peer: o})
		}
		bt.loop.addEvent(event{kind: evBalancerProbeDue, index: p.index})
	}
}

func (bt *baselineTier) prefixTrieBytes() int {
	if bt.scenario.PrefixIndexBytes > 0 {
		return bt.scenario.PrefixIndexBytes
	}
	return 64 << 20
}

// handleBalancerEvent processes an event of the baselines' balancers.
func (bt *baselineTier) handleBalancerEvent(e *event) {
	switch e.kind {
	case evBalancerProbeDue:
		bt.probeAll(bt.balancers[e.index])
	case evBalancerProbeResult:
		bt.recordProbeResults(bt.balancers[e.index], e.payload.([]probeResult))
	case evBalancerPeerResult:
		bt.recordPeerProbe(bt.balancers[e.index], e.payload.(peerProbeResult))
	case evPrequalProbeResult:
		a := e.payload.(baseline.ProbeAnswer)
		a.At = bt.loop.currentTime()
		bt.balancers[e.index].prequal.AddAnswer(a)
	case evBalancerQueue:
		p := bt.balancers[e.index]
		p.queueTurnPending = false
		bt.drainQueue(p)
	case evBalancerArrival:
		bt.arriveAtBalancer(e.request, bt.balancers[e.index])
	case evReplicaArrival:
		bt.arriveAtReplica(e.request)
	}
}

// fixedReplicaLimit is the fixed limit of requests at a replica in SkyWalker's comparison variant.
const fixedReplicaLimit = 10

// chooseTarget applies the baseline's rule to a request.
func (bt *baselineTier) chooseTarget(x *simulatedRequest, p *baselineBalancer, blocks []uint64) baseline.Destination {
	bytes := int64(x.req.PromptTokens) * bytesPerToken
	switch p.rule {
	case ruleGORGO, ruleGORGOPriced:
		return bt.chooseByGORGO(x, p, blocks)
	case rulePrequalPool:
		return bt.chooseByPrequal(p)
	}
	p.replicaBuf, p.peerBuf = p.replicaBuf[:0], p.peerBuf[:0]
	for _, t := range p.replicas {
		s := baseline.SkyWalkerReplica{Pending: t.lastProbe.pendingRequests, Load: t.inflight, Down: t.lastProbe.down}
		switch p.rule {
		case ruleBlindPushing:
			s.Pending = 0
		case ruleFixedLimit:
			s.Pending = max(0, t.inflight-fixedReplicaLimit+1)
		}
		p.replicaBuf = append(p.replicaBuf, s)
	}
	for _, t := range p.peers {
		if t == nil {
			p.peerBuf = append(p.peerBuf, baseline.SkyWalkerPeer{Down: true})
			continue
		}
		p.peerBuf = append(p.peerBuf, baseline.SkyWalkerPeer{Available: t.lastProbe.availableReplicas, Queue: t.lastProbe.queueLen, Load: t.inflight, Down: t.lastProbe.down})
	}
	return p.skyWalker.ChooseDestination(blocks, bytes, p.replicaBuf, p.peerBuf, x.spilledAt != nil)
}

// chooseByGORGO is GORGO's choice among the region's replicas and its peers.
func (bt *baselineTier) chooseByGORGO(x *simulatedRequest, p *baselineBalancer, blocks []uint64) baseline.Destination {
	q := int64(x.req.PromptTokens)
	p.nodeBuf = p.nodeBuf[:0]
	for i, t := range p.replicas {
		p.nodeBuf = append(p.nodeBuf, baseline.GORGONode{
			Unmatched: q - p.replicaPrefixes.MatchedBytes(int32(i), blocks)/bytesPerToken, Queued: t.queuedTokens, Running: t.runningTokens, Local: true, Down: t.lastProbe.down,
		})
	}
	if x.spilledAt == nil {
		for k, t := range p.peers {
			if t == nil {
				p.nodeBuf = append(p.nodeBuf, baseline.GORGONode{Down: true})
				continue
			}
			p.nodeBuf = append(p.nodeBuf, baseline.GORGONode{
				RTT: time.Duration(bt.network.regionRTT(p.region, t.peer.region)).Seconds(), Unmatched: q - p.peerPrefixes.MatchedBytes(int32(k), blocks)/bytesPerToken,
				Queued: t.lastProbe.queuedTokens, Running: t.lastProbe.runningTokens, Down: t.lastProbe.down,
			})
		}
	}
	at := p.gorgo.ChooseNode(p.nodeBuf)
	switch n := len(p.replicas); {
	case at < 0:
		return baseline.Destination{Replica: -1, Peer: -1}
	case at < n:
		return baseline.Destination{Replica: at, Peer: -1}
	default:
		return baseline.Destination{Replica: -1, Peer: at - n}
	}
}

// chooseByPrequal is Prequal's choice, for which it probes three replicas.
func (bt *baselineTier) chooseByPrequal(p *baselineBalancer) baseline.Destination {
	at := p.prequal.ChooseReplica(bt.loop.currentTime(), p.rng)
	for _, i := range p.prequal.ProbeTargets(p.rng) {
		t := p.replicas[i]
		if s := bt.probeWorker(t.worker); s.down {
			continue
		}
		g := t.worker.engine.Gauges()
		n := int64(g.Running + g.Waiting)
		s, _ := t.latency.MedianNear(n)
		a := baseline.ProbeAnswer{Replica: i, InFlight: n, Latency: s}
		bt.loop.addEvent(event{at: bt.loop.now + 2*bt.network.zoneDelay() + int64(bt.scenario.Staleness.Delay), kind: evPrequalProbeResult, index: p.index, payload: a})
	}
	return baseline.Destination{Replica: at, Peer: -1}
}

// arriveAtReplica passes a request to its replica's engine.
func (bt *baselineTier) arriveAtReplica(x *simulatedRequest) {
	w := x.replica.worker
	if w.zone.down {
		bt.handleReplicaLoss(x)
		return
	}
	if bt.scenario.OnDecision != nil {
		bt.scenario.OnDecision(PlacementDecision{
			At: time.Duration(bt.loop.now), RequestID: x.req.ID, Region: w.zone.region.name, Zone: w.zone.name, Worker: w.name, Reason: baselineNames[bt.rule],
		})
	}
	bt.engines.submitToEngine(x, w)
}

// recordReplicaFirstToken records the first token of a request that a baseline placed.
func (bt *baselineTier) recordReplicaFirstToken(x *simulatedRequest) {
	t, n := x.replica, int64(x.req.PromptTokens)
	t.queuedTokens, t.runningTokens = t.queuedTokens-n, t.runningTokens+n
	t.latency.ObserveFirstToken(t.inflight, time.Duration(bt.loop.now-x.placedAt).Seconds(), bt.loop.currentTime())
}

// releaseReplica removes a request from the counts of its balancers.
func (bt *baselineTier) releaseReplica(x *simulatedRequest) {
	if t := x.replica; t != nil {
		n := int64(x.req.PromptTokens)
		t.inflight--
		if x.firstTokenAt > 0 {
			t.runningTokens -= n
		} else {
			t.queuedTokens -= n
		}
		x.replica = nil
	}
}

// handleReplicaLoss handles a request whose replica died: it is tried once more if it has no byte yet.
func (bt *baselineTier) handleReplicaLoss(x *simulatedRequest) {
	p := x.balancer
	had := x.firstTokenAt > 0
	if x.replica != nil {
		x.replica.lastProbe.down = true // until a probe is answered
	}
	bt.releaseReplica(x)
	x.worker, x.sequence = nil, nil
	switch {
	case had:
		bt.recorder.countRequest(x, func(c *RequestCounts) { c.Cut++ })
		bt.requests.endRequest(x, false)
	case x.clientTries > 0:
		bt.requests.refuseRequest(x, openai.CodeUpstream)
	default:
		x.clientTries++
		bt.result.Retried++
		bt.arriveAtBalancer(x, p)
	}
}

// releaseBalancers removes a request from the counts of all balancers, after any end.
func (bt *baselineTier) releaseBalancers(x *simulatedRequest) {
	bt.releaseReplica(x)
	if x.spilledAt != nil {
		x.spilledAt.inflight--
		x.spilledAt = nil
	}
	if x.balancer != nil {
		bt.drainQueue(x.balancer)
	}
}
