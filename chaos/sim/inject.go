package sim

import "github.com/spillway-lb/spillway/internal/openai"

// setFault injects or clears a fault.
func (r *simulation) setFault(i int32, on bool) {
	f := &r.scenario.Faults[i]
	r.activeFaults[i] = on
	switch f.Kind {
	case GlobalDead, LeaderDead:
		r.setGlobalFault(i, f.Kind, on)
	case Partition:
	case Drain:
		r.applyDrains()
	case RegionDead:
		for _, reg := range r.regions {
			if reg.name != f.Region {
				continue
			}
			reg.deathCauses += causeDelta(on)
			reg.down = reg.deathCauses > 0
			for _, g := range reg.gateways {
				r.setGatewayDown(g, on)
			}
			for _, z := range reg.zones {
				r.setZoneDown(z, on, f.Store)
			}
		}
	case GatewayDead:
		for _, reg := range r.regions {
			if reg.name == f.Region && len(reg.gateways) > 0 {
				r.setGatewayDown(reg.gateways[f.Instance], on)
			}
		}
	default:
		r.setZoneFault(r.findZone(f.Region, f.Zone), f, on)
	}
}

func (r *simulation) setZoneFault(z *zoneState, f *Fault, on bool) {
	switch f.Kind {
	case ZoneDead:
		r.setZoneDown(z, on, f.Store)
	case LocalDead:
		r.setInstanceDown(z.instances[f.Instance], on)
	default:
		for k := range max(f.Workers, 1) {
			r.setWorkerFault(z.workers[f.Worker+k], f, on)
		}
	}
}

// setGlobalFault stops the leading global node, or all of them, or restarts those that the fault stopped.
func (r *simulation) setGlobalFault(i int32, k FaultKind, on bool) {
	p := r.global
	switch {
	case p == nil:
	case k == GlobalDead:
		p.deathCauses += causeDelta(on)
	case on:
		if r.failedLeaders == nil {
			r.failedLeaders = map[int32]*globalNode{}
		}
		if n := r.currentLeader(); n != nil { // otherwise there is no node to stop
			n.deathCauses++
			r.failedLeaders[i] = n
		}
	case r.failedLeaders[i] != nil:
		r.failedLeaders[i].deathCauses--
	}
}

func (r *simulation) findZone(region, zone string) *zoneState {
	for _, reg := range r.regions {
		for _, z := range reg.zones {
			if reg.name == region && z.name == zone {
				return z
			}
		}
	}
	return nil // checkScenario has verified it
}

func (r *simulation) setWorkerFault(w *simulatedWorker, f *Fault, on bool) {
	switch f.Kind {
	case WorkerDead:
		if on {
			r.setWorkerDead(w, true)
		} else {
			r.restartWorker(w, f.Store)
		}
	case WorkerStalled:
		w.stallCauses += causeDelta(on)
		r.scheduleStep(w)
	case WorkerSlow:
		factor := 1.0
		if on {
			factor = f.Factor
		}
		w.engine.SetSlowdown(factor * max(w.slowdown, 0.01))
	}
}

// setWorkerDead stops or restarts a worker's process.
func (r *simulation) setWorkerDead(w *simulatedWorker, dead bool) {
	w.deathCauses += causeDelta(dead)
	if !dead || w.deathCauses > 1 {
		return
	}
	w.engine.SettleTo(r.timeAt(r.now))
	for _, s := range w.engine.CancelAll() {
		x := s.Owner().(*simulatedRequest)
		if !x.ended && (x.balancer != nil || !x.instance.down) {
			r.endLostAttempt(x, endConnectionLost, openai.CodeUpstream)
		}
	}
	w.earlierCounters = w.totalCounters()
	w.engine.Restart()
	w.nextStepAt = noEvent
	for _, a := range w.zone.instances {
		for _, s := range a.handles {
			if s.worker == w {
				s.decoding = 0
			}
		}
	}
}

// setZoneDown stops a zone with all its running and waiting requests, or restarts it without state.
func (r *simulation) setZoneDown(z *zoneState, down bool, store float64) {
	z.deathCauses += causeDelta(down)
	if down && z.deathCauses > 1 || !down && z.deathCauses > 0 {
		return
	}
	z.down = down
	if !down {
		for _, w := range z.workers {
			r.restartWorker(w, store)
		}
		for _, a := range z.instances {
			r.setInstanceDown(a, false)
		}
		return
	}
	var there []*simulatedRequest
	for _, a := range z.instances {
		there = append(there, r.markInstanceDown(a)...)
	}
	for _, w := range z.workers {
		r.setWorkerDead(w, true)
	}
	for _, x := range there {
		r.handleInstanceDeath(x)
	}
}

// setInstanceDown stops an instance of a zone with its streams and waiting requests, or restarts it without state.
func (r *simulation) setInstanceDown(a *localInstance, down bool) {
	if down {
		for _, x := range r.markInstanceDown(a) {
			if x.sequence != nil && !x.sequence.IsDone() {
				x.worker.engine.SettleTo(r.timeAt(r.now))
				x.worker.engine.Cancel(x.sequence)
				r.scheduleStep(x.worker)
			}
			r.handleInstanceDeath(x)
		}
		return
	}
	if a.deathCauses--; a.deathCauses > 0 {
		return
	}
	a.down = false
	a.sender.lastSummary, a.sender.boot = nil, a.sender.boot+1
	if err := r.startInstance(a); err != nil {
		r.failure = err
	}
}

// markInstanceDown counts a cause of an instance's death, and returns its requests if it is the first.
func (r *simulation) markInstanceDown(a *localInstance) (there []*simulatedRequest) {
	if a.deathCauses++; a.deathCauses > 1 {
		return nil
	}
	a.down = true
	for _, x := range r.active {
		if x.instance == a && x.zoneRequest != nil && !x.ended {
			there = append(there, x)
		}
	}
	return there
}

// handleInstanceDeath handles a request whose instance died: it is retried elsewhere if it had not begun, and resumed
// if that is allowed. If only the end of the stream was missing, its gateway writes it.
func (r *simulation) handleInstanceDeath(x *simulatedRequest) {
	r.recordService(x)
	if x.sequence != nil && x.sequence.IsDone() && x.homeRequest != nil && !x.homeGateway.down && (x.peerRequest == nil || !x.peerGateway.down) {
		r.releaseGateways(x, openai.TokenUsage{Prompt: x.req.PromptTokens, Completion: x.req.Output}, true)
		r.recordCompletion(x)
		x.zoneRequest = nil
		r.endRequest(x, true)
		return
	}
	had := x.priorTokens
	if x.sequence != nil {
		had += x.sequence.GeneratedTokens()
	}
	x.zoneRequest, x.worker, x.handle, x.sequence, x.attempt = nil, nil, nil, nil, nil
	switch {
	case had == 0:
		r.handleZoneUnreachable(x)
	case x.restMoved && had == x.priorTokens:
		r.retryResumedStream(x)
	case !r.resumeAtGateway(x, had-x.priorTokens):
		r.endCutStream(x)
	}
}

// retryResumedStream sends the rest of a resumed stream elsewhere when its instance died before its first token. As
// in a gateway, that is the one retry of the resumed attempt and no second resumption.
func (r *simulation) retryResumedStream(x *simulatedRequest) {
	if x.homeGateway.down {
		r.endCutStream(x)
		return
	}
	if x.peerRequest != nil {
		x.peerGateway.model.finishAttempt(x.peerRequest, openai.TokenUsage{}, false)
		x.peerRequest, x.peerGateway = nil, nil
	} else {
		x.homeGateway.model.suspectEndpoint(x.instance.name, r.timeAt(r.now))
	}
	x.homeGateway.model.finishAttempt(x.homeRequest, openai.TokenUsage{}, false)
	r.retryElsewhere(x)
}

// resumeAtGateway lets the gateway of a request resume an answer elsewhere that was cut after more further tokens.
func (r *simulation) resumeAtGateway(x *simulatedRequest, more int) bool {
	if x.homeRequest == nil || x.homeGateway.down || x.gatewayResumed || x.req.Output <= x.priorTokens+more {
		return false
	}
	if x.peerRequest != nil {
		x.peerGateway.model.finishAttempt(x.peerRequest, openai.TokenUsage{}, false)
		x.peerRequest, x.peerGateway = nil, nil
	} else {
		x.homeGateway.model.suspectEndpoint(x.instance.name, r.timeAt(r.now))
	}
	if !x.homeGateway.model.resumeRequest(x.homeRequest, more, len(r.active)/max(len(r.gateways), 1), r.timeAt(r.now)) {
		return false
	}
	x.priorTokens += more
	x.restMoved, x.gatewayResumed = true, true
	r.result.Resumed++
	r.routeRequest(x)
	return true
}

// handleZoneUnreachable handles a request whose zone died before its first byte, or was dead when it arrived.
func (r *simulation) handleZoneUnreachable(x *simulatedRequest) {
	if x.homeRequest == nil {
		r.refuseRequest(x, openai.CodeUpstream)
		return
	}
	g := x.homeGateway
	if x.peerRequest != nil {
		g = x.peerGateway
	}
	if !g.down {
		g.model.suspectEndpoint(x.instance.name, r.timeAt(r.now))
	}
	r.handleZoneRefusal(x, openai.CodeUpstream)
}

// setGatewayDown stops a gateway with its streams, or restarts it without state.
func (r *simulation) setGatewayDown(g *gatewayInstance, down bool) {
	if !down {
		if g.deathCauses--; g.deathCauses == 0 {
			g.down = false
			r.startGateway(g)
		}
		return
	}
	if g.deathCauses++; g.deathCauses > 1 {
		return
	}
	g.down = true
	for _, x := range append([]*simulatedRequest(nil), r.active...) {
		if x.ended || x.homeRequest == nil || x.homeGateway != g && (x.peerGateway != g || x.peerRequest == nil) {
			continue
		}
		r.handleGatewayDeath(x, g)
	}
}

// handleGatewayDeath handles a request of a gateway that died. Its client sees a broken connection and sends the
// request again, elsewhere, if it had no byte. If it came from a peer, the peer's gateway retries it elsewhere.
func (r *simulation) handleGatewayDeath(x *simulatedRequest, g *gatewayInstance) {
	r.recordService(x)
	had := x.priorTokens
	if x.sequence != nil {
		had += x.sequence.GeneratedTokens()
	}
	if x.zoneRequest != nil && !x.instance.down {
		r.cancelInZone(x)
	}
	onWay := x.zoneRequest == nil
	x.zoneRequest, x.worker, x.handle, x.sequence, x.attempt = nil, nil, nil, nil, nil
	if x.homeGateway != g { // the peer died
		x.peerRequest, x.peerGateway = nil, nil
		switch {
		case onWay:
			x.deadGateway = g
		case had == 0 || x.restMoved && had == x.priorTokens:
			r.retryWithoutPeer(x, g)
		case !r.resumeAtGateway(x, had-x.priorTokens):
			r.endCutStream(x)
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
		r.endCutStream(x)
	default:
		r.retryConnect(x)
	}
}

// retryWithoutPeer lets the gateway of a request retry it elsewhere than at a dead peer.
func (r *simulation) retryWithoutPeer(x *simulatedRequest, peer *gatewayInstance) {
	x.homeGateway.model.finishAttempt(x.homeRequest, openai.TokenUsage{}, false)
	x.homeGateway.model.suspectEndpoint(peer.name, r.timeAt(r.now))
	r.retryElsewhere(x)
}

// handleSenderDeath reports whether a gateway died while a request was in transit from it, and handles that.
func (r *simulation) handleSenderDeath(x *simulatedRequest) bool {
	g := x.deadGateway
	x.deadGateway = nil
	switch {
	case g == nil:
		return false
	case g == x.homeGateway && x.priorTokens > 0:
		r.endCutStream(x)
	case g == x.homeGateway:
		r.retryConnect(x)
	case x.priorTokens > 0 && !x.restMoved:
		r.endCutStream(x)
	default:
		r.retryWithoutPeer(x, g)
	}
	return true
}

// cancelInZone releases a request's resources in a zone, as after its client has left.
func (r *simulation) cancelInZone(x *simulatedRequest) {
	now := r.timeAt(r.now)
	a := x.instance
	if x.worker == nil {
		a.sim.Admission.LeaveQueue(&x.zoneRequest.Request, now)
	} else {
		made := 0
		if x.sequence != nil {
			made = x.sequence.GeneratedTokens()
			x.worker.engine.SettleTo(now)
			x.worker.engine.Cancel(x.sequence)
			r.scheduleStep(x.worker)
			if made > 0 {
				x.addDecoding(-1)
			}
		}
		a.sim.finishAttempt(x.attempt, openai.TokenUsage{Completion: made}, endClientGone, now, now)
	}
	a.sim.recycleRequest(x.zoneRequest)
	r.handleSettled(a)
}
