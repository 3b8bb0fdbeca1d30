package sim

import (
	"math/rand/v2"

	"github.com/spillway-lb/spillway/chaos/baseline"
	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/local/prefix"
)

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
