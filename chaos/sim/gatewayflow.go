package sim

import (
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
)

// codeUnreachable is the code of requests whose client reached no gateway.
const codeUnreachable = "unreachable"

// A client whose gateway does not answer waits, resolves again, and retries a number of times.
const (
	connectTimeout  = int64(time.Second)
	maxConnectTries = 3
)

// sendToGateway sends a request from its client.
func (r *simulation) sendToGateway(x *simulatedRequest) {
	door := r.resolveGateway(x, x.clientTries > 0)
	to, from := door.region, r.clientRegion(x.req)
	late := r.scenario.Network.accessRTT() / 2
	x.homeGateway, x.accessDelay = door, late
	if to != from {
		far, ok := r.requestDelay(from, to)
		if !ok {
			r.retryConnect(x)
			return
		}
		late, x.accessDelay = late+far, late+r.regionRTT(from, to)/2
	}
	r.events.addEvent(event{at: r.now + late, kind: evGatewayArrival, request: x})
}

func (r *simulation) clientRegion(q *load.Request) *regionState {
	if i := int(q.Region); i > 0 && i < len(r.regions) {
		return r.regions[i]
	}
	return r.regions[0]
}

// retryConnect handles a gateway that does not answer: the client waits and tries another.
func (r *simulation) retryConnect(x *simulatedRequest) {
	if x.clientTries++; x.clientTries >= maxConnectTries {
		r.refuseRequest(x, codeUnreachable)
		return
	}
	r.events.addEvent(event{at: r.now + connectTimeout, kind: evGatewayArrival, request: x, payload: true})
}

// arriveAtGateway handles the arrival of a request at a gateway.
func (r *simulation) arriveAtGateway(x *simulatedRequest, again bool) {
	if again {
		r.sendToGateway(x)
		return
	}
	g := x.homeGateway
	if g.down {
		r.retryConnect(x)
		return
	}
	req, refusal := g.model.admitRequest(r.gatewayRequest(x), r.timeAt(r.now))
	if refusal != nil {
		r.refuseRequest(x, refusal.Code)
		return
	}
	x.homeRequest = req
	r.routeRequest(x)
}

// gatewayRequest is a request as a gateway parses it.
func (r *simulation) gatewayRequest(x *simulatedRequest) *clientCall {
	q := x.req
	r.landmarkBuf = r.promptLandmarks(q)
	a := &clientCall{
		tenant: r.tenantName(q.Tenant), model: r.modelName(q.Model), service: r.serviceName, cell: r.clientCells[r.clientRegion(q).index], class: r.requestClass(q),
		promptTokens: r.estimatePromptTokens(q), prefix: r.landmarkBuf, session: r.affinityKey(q),
		client: resolverAddr(r.clientRegion(q).index, int32(splitMix64(q.Session)%uint64(r.scenario.Steering.resolverCount()))),
	}
	if r.scenario.OutputLimit != nil {
		a.maxTokens = r.scenario.OutputLimit(q)
	}
	return a
}

// promptLandmarks are the prefix hashes of a prompt as sketches contain them.
func (r *simulation) promptLandmarks(q *load.Request) []uint64 {
	return gpu.HashVariableBlocks(r.landmarkBuf[:0], q.Prompt, func(i int) int {
		switch {
		case i >= capacity.MaxLandmarks:
			return 0
		case i == 0:
			return capacity.LandmarkEnd(0) / bytesPerToken
		}
		return (capacity.LandmarkEnd(i) - capacity.LandmarkEnd(i-1)) / bytesPerToken
	})
}

// routeRequest lets the gateway that received a request choose its target.
func (r *simulation) routeRequest(x *simulatedRequest) {
	g := x.homeGateway
	if !g.model.dispatch(x.homeRequest, r.timeAt(r.now)) {
		r.refuseRequest(x, openai.CodeNoCapacity)
		return
	}
	v := &x.homeRequest.Decision
	if !v.IsSpilled() {
		r.events.addEvent(event{at: r.now + r.zoneDelay(), kind: evZoneArrival, request: x, payload: r.instanceByName[v.Endpoint]})
		return
	}
	peer := r.gatewayByName[v.Endpoint]
	late, ok := r.requestDelay(g.region, peer.region)
	x.spillCostLimit = v.SpillCostLimit
	if !ok || peer.down {
		g.model.finishAttempt(x.homeRequest, openai.TokenUsage{}, false)
		g.model.suspectEndpoint(v.Endpoint, r.timeAt(r.now))
		r.retryElsewhere(x)
		return
	}
	x.peerGateway = peer
	r.events.addEvent(event{at: r.now + late, kind: evPeerArrival, request: x})
}

// arriveAtPeer handles the arrival of a request at a peer region's gateway, which may return it.
func (r *simulation) arriveAtPeer(x *simulatedRequest) {
	if r.handleSenderDeath(x) {
		return
	}
	g := x.peerGateway
	if !g.down {
		if x.peerRequest = g.model.admitSpilled(r.gatewayRequest(x), x.spillCostLimit, r.timeAt(r.now)); x.peerRequest != nil {
			if v := &x.peerRequest.Decision; g.model.dispatch(x.peerRequest, r.timeAt(r.now)) && !v.IsSpilled() {
				x.homeGateway.spillsByPeer[g.region.index]++
				r.events.addEvent(event{at: r.now + r.zoneDelay(), kind: evZoneArrival, request: x, payload: r.instanceByName[v.Endpoint]})
				return
			}
			x.peerRequest = nil
		}
	}
	late, _ := r.requestDelay(x.homeGateway.region, g.region)
	r.events.addEvent(event{at: r.now + late, kind: evPeerReturn, request: x})
}

// returnFromPeer handles a request that a peer refused, back at its gateway.
func (r *simulation) returnFromPeer(x *simulatedRequest) {
	if r.handleSenderDeath(x) {
		return
	}
	g, now := x.homeGateway, r.timeAt(r.now)
	x.peerGateway = nil
	r.result.SpillsRefused++
	g.model.finishAttempt(x.homeRequest, openai.TokenUsage{}, false)
	if g.model.recordSpillOutcome(x.homeRequest, true, now) {
		r.routeRequest(x)
		return
	}
	r.retryElsewhere(x)
}

// retryElsewhere retries once, at another target, a request that failed before its first byte.
func (r *simulation) retryElsewhere(x *simulatedRequest) {
	if x.homeGateway.down {
		r.refuseRequest(x, codeUnreachable)
		return
	}
	if !x.homeGateway.model.takeRetry(x.homeRequest, r.timeAt(r.now)) {
		r.refuseRequest(x, openai.CodeNoCapacity)
		return
	}
	r.result.Retried++
	r.routeRequest(x)
}

// handleZoneRefusal handles a request that a zone refused, or lost before its first byte.
func (r *simulation) handleZoneRefusal(x *simulatedRequest, code string) {
	elsewhere := code == openai.CodeNoCapacity || code == openai.CodeUpstream || code == openai.CodeModelNotFound
	if x.homeRequest == nil || !elsewhere || x.priorTokens > 0 {
		r.refuseRequest(x, code)
		return
	}
	if x.zoneRequest != nil {
		x.instance.sim.recycleRequest(x.zoneRequest)
		x.zoneRequest = nil
	}
	if x.peerRequest != nil {
		x.peerGateway.model.finishAttempt(x.peerRequest, openai.TokenUsage{}, false)
		x.peerRequest = nil
		late, _ := r.requestDelay(x.homeGateway.region, x.peerGateway.region)
		r.events.addEvent(event{at: r.now + late, kind: evPeerReturn, request: x})
		return
	}
	x.homeGateway.model.finishAttempt(x.homeRequest, openai.TokenUsage{}, false)
	r.retryElsewhere(x)
}

// recordGatewayFirstByte records at the gateways that an answer has begun.
func (r *simulation) recordGatewayFirstByte(x *simulatedRequest) {
	if x.homeRequest == nil {
		return
	}
	x.homeGateway.model.router.RecordFirstByte(&x.homeRequest.Attempt)
	if x.peerRequest != nil {
		x.peerGateway.model.router.RecordFirstByte(&x.peerRequest.Attempt)
		x.homeGateway.model.recordSpillOutcome(x.homeRequest, false, r.timeAt(r.now))
	}
}

// releaseGateways removes a request from the gateways' ledgers, after any end.
func (r *simulation) releaseGateways(x *simulatedRequest, u openai.TokenUsage, whole bool) {
	if x.homeRequest == nil {
		return
	}
	if x.peerRequest != nil {
		x.peerGateway.model.finishAttempt(x.peerRequest, u, whole)
	}
	x.homeGateway.model.finishAttempt(x.homeRequest, u, whole)
	x.homeGateway.model.settleRequest(x.homeRequest, r.timeAt(r.now))
}

// responseDelay is the time of an answer from its worker to its client.
func (r *simulation) responseDelay(x *simulatedRequest) int64 {
	if x.balancer != nil {
		return r.zoneDelay() + x.accessDelay
	}
	if x.homeRequest == nil {
		return 0
	}
	late := r.zoneDelay() + x.accessDelay
	if x.peerRequest != nil {
		late += r.regionRTT(x.homeGateway.region, x.peerGateway.region) / 2
	}
	return late
}
