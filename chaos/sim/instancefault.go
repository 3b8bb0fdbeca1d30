package sim

import "github.com/spillway-lb/spillway/internal/openai"

// setInstanceDown stops an instance of a zone with its streams and waiting requests, or restarts it without state.
func (fi *faultInjector) setInstanceDown(a *localInstance, down bool) {
	if down {
		for _, x := range fi.zones.markInstanceDown(a) {
			if x.sequence != nil && !x.sequence.IsDone() {
				x.worker.engine.SettleTo(fi.loop.currentTime())
				x.worker.engine.Cancel(x.sequence)
				fi.engines.scheduleStep(x.worker)
			}
			fi.handleInstanceDeath(x)
		}
		return
	}
	if a.deathCauses--; a.deathCauses > 0 {
		return
	}
	a.down = false
	a.sender.lastSummary, a.sender.boot = nil, a.sender.boot+1
	if err := fi.zones.startInstance(a); err != nil {
		fi.loop.failure = err
	}
}

// handleInstanceDeath handles a request whose instance died: it is retried elsewhere if it had not begun, and resumed
// if that is allowed. If only the end of the stream was missing, its gateway writes it.
func (fi *faultInjector) handleInstanceDeath(x *simulatedRequest) {
	fi.recorder.recordService(x)
	if x.sequence != nil && x.sequence.IsDone() && x.homeRequest != nil && !x.homeGateway.down && (x.peerRequest == nil || !x.peerGateway.down) {
		fi.regional.releaseGateways(x, openai.TokenUsage{Prompt: x.req.PromptTokens, Completion: x.req.Output}, true)
		fi.recorder.recordCompletion(x)
		x.zoneRequest = nil
		fi.requests.endRequest(x, true)
		return
	}
	had := x.priorTokens
	if x.sequence != nil {
		had += x.sequence.GeneratedTokens()
	}
	x.zoneRequest, x.worker, x.handle, x.sequence, x.attempt = nil, nil, nil, nil, nil
	switch {
	case had == 0:
		fi.regional.handleZoneUnreachable(x)
	case x.restMoved && had == x.priorTokens:
		fi.regional.retryResumedStream(x)
	case !fi.regional.resumeAtGateway(x, had-x.priorTokens):
		fi.requests.endCutStream(x)
	}
}

// setGatewayDown stops a gateway with its streams, or restarts it without state.
func (fi *faultInjector) setGatewayDown(g *gatewayInstance, down bool) {
	if !down {
		if g.deathCauses--; g.deathCauses == 0 {
			g.down = false
			fi.regional.startGateway(g)
		}
		return
	}
	if g.deathCauses++; g.deathCauses > 1 {
		return
	}
	g.down = true
	for _, x := range append([]*simulatedRequest(nil), fi.requests.active...) {
		if x.ended || x.homeRequest == nil || x.homeGateway != g && (x.peerGateway != g || x.peerRequest == nil) {
			continue
		}
		fi.handleGatewayDeath(x, g)
	}
}

// handleGatewayDeath handles a request of a gateway that died. Its client sees a broken connection and sends the
// request again, elsewhere, if it had no byte. If it came from a peer, the peer's gateway retries it elsewhere.
func (fi *faultInjector) handleGatewayDeath(x *simulatedRequest, g *gatewayInstance) {
	fi.recorder.recordService(x)
	had := x.priorTokens
	if x.sequence != nil {
		had += x.sequence.GeneratedTokens()
	}
	if x.zoneRequest != nil && !x.instance.down {
		fi.zones.cancelInZone(x)
	}
	onWay := x.zoneRequest == nil
	x.zoneRequest, x.worker, x.handle, x.sequence, x.attempt = nil, nil, nil, nil, nil
	if x.homeGateway != g { // the peer died
		x.peerRequest, x.peerGateway = nil, nil
		switch {
		case onWay:
			x.deadGateway = g
		case had == 0 || x.restMoved && had == x.priorTokens:
			fi.regional.retryWithoutPeer(x, g)
		case !fi.regional.resumeAtGateway(x, had-x.priorTokens):
			fi.requests.endCutStream(x)
		}
		return
	}
	if x.peerRequest != nil && !x.peerGateway.down {
		x.peerGateway.model.finishAttempt(x.peerRequest, openai.TokenUsage{}, false)
	}
	x.homeRequest, x.peerRequest, x.peerGateway = nil, nil, nil
	switch {
	case onWay: // its target will find it
		x.deadGateway = g
	case had > 0:
		fi.requests.endCutStream(x)
	default:
		fi.regional.retryConnect(x)
	}
}
