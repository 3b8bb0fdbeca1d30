package sim

import (
	"time"

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
func (gt *gatewayTier) sendToGateway(x *simulatedRequest) {
	gateway := gt.global.resolveGateway(x, x.clientTries > 0)
	to, from := gateway.region, gt.topology.clientRegion(x.req)
	late := gt.scenario.Network.accessRTT() / 2
	x.homeGateway, x.accessDelay = gateway, late
	if to != from {
		far, ok := gt.network.requestDelay(from, to)
		if !ok {
			gt.retryConnect(x)
			return
		}
		late, x.accessDelay = late+far, late+gt.network.regionRTT(from, to)/2
	}
	gt.loop.addEvent(event{at: gt.loop.now + late, kind: evGatewayArrival, request: x})
}

// retryConnect handles a gateway that does not answer: the client waits and tries another.
func (gt *gatewayTier) retryConnect(x *simulatedRequest) {
	if x.clientTries++; x.clientTries >= maxConnectTries {
		gt.requests.refuseRequest(x, codeUnreachable)
		return
	}
	gt.loop.addEvent(event{at: gt.loop.now + connectTimeout, kind: evGatewayArrival, request: x, payload: true})
}

// arriveAtGateway handles the arrival of a request at a gateway.
func (gt *gatewayTier) arriveAtGateway(x *simulatedRequest, again bool) {
	if again {
		gt.sendToGateway(x)
		return
	}
	g := x.homeGateway
	if g.down {
		gt.retryConnect(x)
		return
	}
	req, refusal := g.model.admitRequest(gt.gatewayRequest(x), gt.loop.currentTime())
	if refusal != nil {
		gt.requests.refuseRequest(x, refusal.Code)
		return
	}
	x.homeRequest = req
	gt.routeRequest(x)
}

// gatewayRequest is a request as a gateway parses it.
func (gt *gatewayTier) gatewayRequest(x *simulatedRequest) *clientCall {
	q := x.req
	a := &clientCall{
		tenant: gt.reader.tenantName(q.Tenant), model: gt.reader.modelName(q.Model), service: gt.serviceName, cell: gt.clientCells[gt.topology.clientRegion(q).index], class: gt.reader.requestClass(q),
		promptTokens: gt.reader.estimatePromptTokens(q), prefix: gt.reader.promptLandmarks(q), session: gt.reader.affinityKey(q),
		client: resolverAddr(gt.topology.clientRegion(q).index, int32(splitMix64(q.Session)%uint64(gt.scenario.Steering.resolverCount()))),
	}
	if gt.scenario.OutputLimit != nil {
		a.maxTokens = gt.scenario.OutputLimit(q)
	}
	return a
}

// routeRequest lets the gateway that received a request choose its target.
func (gt *gatewayTier) routeRequest(x *simulatedRequest) {
	g := x.homeGateway
	if !g.model.dispatchRequest(x.homeRequest, gt.loop.currentTime()) {
		gt.requests.refuseRequest(x, openai.CodeNoCapacity)
		return
	}
	v := &x.homeRequest.Decision
	if !v.IsSpilled() {
		gt.loop.addEvent(event{at: gt.loop.now + gt.network.zoneDelay(), kind: evZoneArrival, request: x, payload: gt.topology.instanceByName[v.Endpoint]})
		return
	}
	peer := gt.topology.gatewayByName[v.Endpoint]
	late, ok := gt.network.requestDelay(g.region, peer.region)
	x.spillCostLimit = v.SpillCostLimit
	if !ok || peer.down {
		g.model.finishAttempt(x.homeRequest, openai.TokenUsage{}, false)
		g.model.suspectEndpoint(v.Endpoint, gt.loop.currentTime())
		gt.retryElsewhere(x)
		return
	}
	x.peerGateway = peer
	gt.loop.addEvent(event{at: gt.loop.now + late, kind: evPeerArrival, request: x})
}

// arriveAtPeer handles the arrival of a request at a peer region's gateway, which may return it.
func (gt *gatewayTier) arriveAtPeer(x *simulatedRequest) {
	if gt.handleSenderDeath(x) {
		return
	}
	g := x.peerGateway
	if !g.down {
		if x.peerRequest = g.model.admitSpilled(gt.gatewayRequest(x), x.spillCostLimit, gt.loop.currentTime()); x.peerRequest != nil {
			if v := &x.peerRequest.Decision; g.model.dispatchRequest(x.peerRequest, gt.loop.currentTime()) && !v.IsSpilled() {
				x.homeGateway.spillsByPeer[g.region.index]++
				gt.loop.addEvent(event{at: gt.loop.now + gt.network.zoneDelay(), kind: evZoneArrival, request: x, payload: gt.topology.instanceByName[v.Endpoint]})
				return
			}
			x.peerRequest = nil
		}
	}
	late, _ := gt.network.requestDelay(x.homeGateway.region, g.region)
	gt.loop.addEvent(event{at: gt.loop.now + late, kind: evPeerReturn, request: x})
}

// returnFromPeer handles a request that a peer refused, back at its gateway.
func (gt *gatewayTier) returnFromPeer(x *simulatedRequest) {
	if gt.handleSenderDeath(x) {
		return
	}
	g, now := x.homeGateway, gt.loop.currentTime()
	x.peerGateway = nil
	gt.result.SpillsRefused++
	g.model.finishAttempt(x.homeRequest, openai.TokenUsage{}, false)
	if g.model.recordSpillOutcome(x.homeRequest, true, now) {
		gt.routeRequest(x)
		return
	}
	gt.retryElsewhere(x)
}

// retryElsewhere retries once, at another target, a request that failed before its first byte.
func (gt *gatewayTier) retryElsewhere(x *simulatedRequest) {
	if x.homeGateway.down {
		gt.requests.refuseRequest(x, codeUnreachable)
		return
	}
	if !x.homeGateway.model.takeRetry(x.homeRequest, gt.loop.currentTime()) {
		gt.requests.refuseRequest(x, openai.CodeNoCapacity)
		return
	}
	gt.result.Retried++
	gt.routeRequest(x)
}

// handleZoneRefusal handles a request that a zone refused, or lost before its first byte.
func (gt *gatewayTier) handleZoneRefusal(x *simulatedRequest, code string) {
	elsewhere := code == openai.CodeNoCapacity || code == openai.CodeUpstream || code == openai.CodeModelNotFound
	if x.homeRequest == nil || !elsewhere || x.priorTokens > 0 {
		gt.requests.refuseRequest(x, code)
		return
	}
	if x.zoneRequest != nil {
		x.instance.sim.recycleRequest(x.zoneRequest)
		x.zoneRequest = nil
	}
	if x.peerRequest != nil {
		x.peerGateway.model.finishAttempt(x.peerRequest, openai.TokenUsage{}, false)
		x.peerRequest = nil
		late, _ := gt.network.requestDelay(x.homeGateway.region, x.peerGateway.region)
		gt.loop.addEvent(event{at: gt.loop.now + late, kind: evPeerReturn, request: x})
		return
	}
	x.homeGateway.model.finishAttempt(x.homeRequest, openai.TokenUsage{}, false)
	gt.retryElsewhere(x)
}

// recordGatewayFirstByte records at the gateways that an answer has begun.
func (gt *gatewayTier) recordGatewayFirstByte(x *simulatedRequest) {
	if x.homeRequest == nil {
		return
	}
	x.homeGateway.model.router.RecordFirstByte(&x.homeRequest.Attempt)
	if x.peerRequest != nil {
		x.peerGateway.model.router.RecordFirstByte(&x.peerRequest.Attempt)
		x.homeGateway.model.recordSpillOutcome(x.homeRequest, false, gt.loop.currentTime())
	}
}

// releaseGateways removes a request from the gateways' ledgers, after any end.
func (gt *gatewayTier) releaseGateways(x *simulatedRequest, u openai.TokenUsage, whole bool) {
	if x.homeRequest == nil {
		return
	}
	if x.peerRequest != nil {
		x.peerGateway.model.finishAttempt(x.peerRequest, u, whole)
	}
	x.homeGateway.model.finishAttempt(x.homeRequest, u, whole)
	x.homeGateway.model.settleRequest(x.homeRequest, gt.loop.currentTime())
}

// retryResumedStream sends the rest of a resumed stream elsewhere when its instance died before its first token. As
// in a gateway, that is the one retry of the resumed attempt and no second resumption.
func (gt *gatewayTier) retryResumedStream(x *simulatedRequest) {
	if x.homeGateway.down {
		gt.requests.endCutStream(x)
		return
	}
	if x.peerRequest != nil {
		x.peerGateway.model.finishAttempt(x.peerRequest, openai.TokenUsage{}, false)
		x.peerRequest, x.peerGateway = nil, nil
	} else {
		x.homeGateway.model.suspectEndpoint(x.instance.name, gt.loop.currentTime())
	}
	x.homeGateway.model.finishAttempt(x.homeRequest, openai.TokenUsage{}, false)
	gt.retryElsewhere(x)
}

// resumeAtGateway lets the gateway of a request resume an answer elsewhere that was cut after more further tokens.
func (gt *gatewayTier) resumeAtGateway(x *simulatedRequest, more int) bool {
	if x.homeRequest == nil || x.homeGateway.down || x.gatewayResumed || x.req.Output <= x.priorTokens+more {
		return false
	}
	if x.peerRequest != nil {
		x.peerGateway.model.finishAttempt(x.peerRequest, openai.TokenUsage{}, false)
		x.peerRequest, x.peerGateway = nil, nil
	} else {
		x.homeGateway.model.suspectEndpoint(x.instance.name, gt.loop.currentTime())
	}
	if !x.homeGateway.model.resumeRequest(x.homeRequest, more, len(gt.requests.active)/max(len(gt.topology.gateways), 1), gt.loop.currentTime()) {
		return false
	}
	x.priorTokens += more
	x.restMoved, x.gatewayResumed = true, true
	gt.result.Resumed++
	gt.routeRequest(x)
	return true
}

// handleZoneUnreachable handles a request whose zone died before its first byte, or was dead when it arrived.
func (gt *gatewayTier) handleZoneUnreachable(x *simulatedRequest) {
	if x.homeRequest == nil {
		gt.requests.refuseRequest(x, openai.CodeUpstream)
		return
	}
	g := x.homeGateway
	if x.peerRequest != nil {
		g = x.peerGateway
	}
	if !g.down {
		g.model.suspectEndpoint(x.instance.name, gt.loop.currentTime())
	}
	gt.handleZoneRefusal(x, openai.CodeUpstream)
}

// retryWithoutPeer lets the gateway of a request retry it elsewhere than at a dead peer.
func (gt *gatewayTier) retryWithoutPeer(x *simulatedRequest, peer *gatewayInstance) {
	x.homeGateway.model.finishAttempt(x.homeRequest, openai.TokenUsage{}, false)
	x.homeGateway.model.suspectEndpoint(peer.name, gt.loop.currentTime())
	gt.retryElsewhere(x)
}

// handleSenderDeath reports whether a gateway died while a request was in transit from it, and handles that.
func (gt *gatewayTier) handleSenderDeath(x *simulatedRequest) bool {
	g := x.deadGateway
	x.deadGateway = nil
	switch {
	case g == nil:
		return false
	case g == x.homeGateway && x.priorTokens > 0:
		gt.requests.endCutStream(x)
	case g == x.homeGateway:
		gt.retryConnect(x)
	case x.priorTokens > 0 && !x.restMoved:
		gt.requests.endCutStream(x)
	default:
		gt.retryWithoutPeer(x, g)
	}
	return true
}
