package sim

import (
	"time"

	"github.com/spillway-lb/spillway/chaos/baseline"
)

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
