package sim

import (
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// faultInjector injects the scenario's faults and clears them.
type faultInjector struct {
	scenario      *Scenario
	spec          *spec.Spec
	drainIndex    uint64
	failedLeaders map[int32]*globalNode // by fault

	loop     *eventLoop
	topology *topology
	faults   *faultStates
	recorder *recorder
	requests *requestTable
	engines  *workerTier
	zones    *zoneTier
	regional *gatewayTier
	global   *globalTier
	observer *observer
}

// setFault injects or clears a fault.
func (fi *faultInjector) setFault(i int32, on bool) {
	f := &fi.scenario.Faults[i]
	fi.faults.active[i] = on
	fi.observer.recordFault(i, on)
	switch f.Kind {
	case GlobalDead, LeaderDead, GlobalNodeDead:
		fi.setGlobalFault(i, f.Kind, on)
	case Partition:
	case Drain:
		fi.applyDrains()
	case RegionDead:
		for _, reg := range fi.topology.regions {
			if reg.name != f.Region {
				continue
			}
			reg.deathCauses += causeDelta(on)
			reg.down = reg.deathCauses > 0
			for _, g := range reg.gateways {
				fi.setGatewayDown(g, on)
			}
			for _, z := range reg.zones {
				fi.setZoneDown(z, on, f.Store)
			}
		}
	case GatewayDead:
		for _, reg := range fi.topology.regions {
			if reg.name == f.Region && len(reg.gateways) > 0 {
				fi.setGatewayDown(reg.gateways[f.Instance], on)
			}
		}
	default:
		fi.setZoneFault(fi.topology.findZone(f.Region, f.Zone), f, on)
	}
}

func (fi *faultInjector) setZoneFault(z *zoneState, f *Fault, on bool) {
	switch f.Kind {
	case ZoneDead:
		fi.setZoneDown(z, on, f.Store)
	case LocalDead:
		fi.setInstanceDown(z.instances[f.Instance], on)
	default:
		for k := range max(f.Workers, 1) {
			fi.setWorkerFault(z.workers[f.Worker+k], f, on)
		}
	}
}

// setGlobalFault stops the leading global node, or all of them, or restarts those that the fault stopped.
func (fi *faultInjector) setGlobalFault(i int32, k FaultKind, on bool) {
	p := fi.global
	switch {
	case !p.hasNodes():
	case k == GlobalDead:
		p.deathCauses += causeDelta(on)
	case k == GlobalNodeDead:
		p.nodes[fi.scenario.Faults[i].Instance].deathCauses += causeDelta(on)
	case on:
		if fi.failedLeaders == nil {
			fi.failedLeaders = map[int32]*globalNode{}
		}
		if n := fi.global.currentLeader(); n != nil { // otherwise there is no node to stop
			n.deathCauses++
			fi.failedLeaders[i] = n
		}
	case fi.failedLeaders[i] != nil:
		fi.failedLeaders[i].deathCauses--
	}
}

func (fi *faultInjector) setWorkerFault(w *simulatedWorker, f *Fault, on bool) {
	switch f.Kind {
	case WorkerDead:
		if on {
			fi.engines.setWorkerDead(w, true)
		} else {
			fi.engines.restartWorker(w, f.Store)
		}
	case WorkerStalled:
		w.stallCauses += causeDelta(on)
		fi.engines.scheduleStep(w)
	case WorkerRefuses:
		w.refuseCauses += causeDelta(on)
	case WorkerCuts:
		if w.cuts = nil; on {
			w.cuts = f
		}
	case WorkerSlow:
		factor := 1.0
		if on {
			factor = f.Factor
		}
		w.engine.SetSlowdown(factor * max(w.slowdown, 0.01))
	}
}

// setZoneDown stops a zone with all its running and waiting requests, or restarts it without state.
func (fi *faultInjector) setZoneDown(z *zoneState, down bool, store float64) {
	z.deathCauses += causeDelta(down)
	if down && z.deathCauses > 1 || !down && z.deathCauses > 0 {
		return
	}
	z.down = down
	if !down {
		for _, w := range z.workers {
			fi.engines.restartWorker(w, store)
		}
		for _, a := range z.instances {
			fi.setInstanceDown(a, false)
		}
		return
	}
	var there []*simulatedRequest
	for _, a := range z.instances {
		there = append(there, fi.zones.markInstanceDown(a)...)
	}
	for _, w := range z.workers {
		fi.engines.setWorkerDead(w, true)
	}
	for _, x := range there {
		fi.handleInstanceDeath(x)
	}
}

func (fi *faultInjector) scheduleFaults() {
	for i := range fi.scenario.Faults {
		f := &fi.scenario.Faults[i]
		fi.loop.addEvent(event{at: int64(f.At), kind: evInjectFault, index: int32(i)})
		if f.For > 0 {
			fi.loop.addEvent(event{at: int64(f.At + f.For), kind: evClearFault, index: int32(i)})
		}
	}
}

// causeDelta is the change of a count of causes: a target of two faults recovers when both are cleared.
func causeDelta(on bool) int {
	if on {
		return 1
	}
	return -1
}

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

// applyDrains sets the active drains at every place where drains are agreed on.
func (fi *faultInjector) applyDrains() {
	var list []uplink.ActiveDrain
	for i := range fi.scenario.Faults {
		f := &fi.scenario.Faults[i]
		if f.Kind == Drain && fi.faults.active[i] {
			for _, path := range fi.drainPaths(f) {
				list = append(list, uplink.ActiveDrain{Path: path, Reason: "the experiment", Start: fi.loop.startTime.Add(f.At), Over: f.Over})
			}
		}
	}
	if p := fi.global; p.hasNodes() {
		for _, n := range p.nodes {
			n.core.setDrains(list)
		}
		return
	}
	fi.drainIndex++
	d := &uplink.Directive{Index: fi.drainIndex, Drains: list}
	for _, g := range fi.topology.gateways {
		g.model.applyDirective(d, fi.spec, fi.loop.currentTime())
		fi.regional.sendZoneDirectives(g)
	}
	if len(fi.topology.gateways) == 0 {
		for _, a := range fi.topology.instances {
			fi.zones.applyZoneDirective(a, directiveMessage{directive: d})
		}
	}
}

// drainPaths are the paths that a drain covers.
func (fi *faultInjector) drainPaths(f *Fault) (out []string) {
	switch {
	case f.Zone == "":
		return []string{f.Region}
	case f.Workers == 0:
		return []string{f.Region + "/" + f.Zone}
	}
	z := fi.topology.findZone(f.Region, f.Zone)
	for k := range f.Workers {
		out = append(out, f.Region+"/"+f.Zone+"/"+z.workers[f.Worker+k].name)
	}
	return out
}
