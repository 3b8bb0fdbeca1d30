package sim

import "github.com/spillway-lb/spillway/internal/openai"

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
