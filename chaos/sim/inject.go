package sim

import "github.com/spillway-lb/spillway/internal/spec"

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
}

// setFault injects or clears a fault.
func (fi *faultInjector) setFault(i int32, on bool) {
	f := &fi.scenario.Faults[i]
	fi.faults.active[i] = on
	switch f.Kind {
	case GlobalDead, LeaderDead:
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
