package sim

import (
	"time"

	"github.com/spillway-lb/spillway/chaos/baseline"
)

// probeInterval is the interval of a balancer's probes if the scenario does not set the scrape interval.
const probeInterval = int64(baseline.ProbeIntervalMillis) * int64(time.Millisecond)

// probeResult is the answer to the last probe.
type probeResult struct {
	down              bool
	pendingRequests   int64
	availableReplicas int
	queueLen          int64
	queuedTokens      int64 // waiting tokens at the best of a peer's replicas, and running tokens there
	runningTokens     int64
}

// probeAll probes a balancer's replicas and peers. Answers arrive a round trip later, with the scenario's staleness.
func (bt *baselineTier) probeAll(p *baselineBalancer) {
	every := probeInterval
	if bt.scenario.Staleness.Interval > 0 {
		every = int64(bt.scenario.Staleness.Interval)
	}
	bt.loop.addEvent(event{at: bt.loop.now + every, kind: evBalancerProbeDue, index: p.index})
	if p.region.down {
		return
	}
	results := make([]probeResult, len(p.replicas)+len(p.peers))
	for i, t := range p.replicas {
		results[i] = bt.probeWorker(t.worker)
	}
	bt.loop.addEvent(event{at: bt.loop.now + 2*bt.network.zoneDelay() + int64(bt.scenario.Staleness.Delay), kind: evBalancerProbeResult, index: p.index, payload: results[:len(p.replicas)]})
	for k, t := range p.peers {
		if t == nil {
			continue
		}
		late, ok := bt.network.datagramDelay(p.region, t.peer.region)
		if !ok || t.peer.region.down {
			bt.loop.addEvent(event{at: bt.loop.now + every, kind: evBalancerPeerResult, index: p.index, payload: peerProbeResult{k, probeResult{down: true}}})
			continue
		}
		bt.loop.addEvent(event{at: bt.loop.now + late + int64(bt.scenario.Staleness.Delay), kind: evBalancerPeerResult, index: p.index, payload: peerProbeResult{k, bt.probePeer(t.peer)}})
	}
}

// peerProbeResult is one peer's answer.
type peerProbeResult struct {
	peer   int
	result probeResult
}

func (bt *baselineTier) probeWorker(w *simulatedWorker) probeResult {
	if w.deathCauses > 0 || w.zone.down {
		return probeResult{down: true}
	}
	w.engine.SettleTo(bt.loop.currentTime())
	return probeResult{pendingRequests: int64(w.engine.Gauges().Waiting)}
}

// probePeer is a balancer's answer to its peers.
func (bt *baselineTier) probePeer(p *baselineBalancer) (s probeResult) {
	s.queueLen = int64(len(p.queue))
	least := int64(-1)
	for _, t := range p.replicas {
		now := bt.probeWorker(t.worker)
		if now.down {
			continue
		}
		if now.pendingRequests == 0 {
			s.availableReplicas++
		}
		if all := t.queuedTokens + t.runningTokens; least < 0 || all < least {
			least, s.queuedTokens, s.runningTokens = all, t.queuedTokens, t.runningTokens
		}
	}
	s.down = least < 0
	return s
}

// recordProbeResults records the replicas' answers and serves the queue.
func (bt *baselineTier) recordProbeResults(p *baselineBalancer, results []probeResult) {
	for i := range results {
		p.replicas[i].lastProbe = results[i]
	}
	bt.drainQueue(p)
}

func (bt *baselineTier) recordPeerProbe(p *baselineBalancer, s peerProbeResult) {
	p.peers[s.peer].lastProbe = s.result
	bt.drainQueue(p)
}
