package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/perfmodel"
)

// workerTier is the engines of all workers, and the attempts of requests at them.
type workerTier struct {
	scenario *Scenario
	result   *RunResult
	givenUp  []*simulatedRequest // given up by a scheduler, until that is carried out

	loop      *eventLoop
	topology  *topology
	recorder  *recorder
	requests  *requestTable
	zones     *zoneTier
	regional  *gatewayTier
	baselines *baselineTier
}

func (wt *workerTier) newSimulatedWorker(z *zoneState, g *WorkerGroup, n int, rng *rand.Rand) (*simulatedWorker, error) {
	p, err := gpu.LookupProfile(g.GPU, g.Model, g.TP)
	if err != nil {
		return nil, err
	}
	if g.KVBlocks > 0 {
		p.Blocks = g.KVBlocks
	}
	w := &simulatedWorker{index: int32(len(wt.topology.workers)), zone: z, name: fmt.Sprintf("w%04d", n), gpu: g.declaredGPU(&p), nextStepAt: noEvent}
	noise := rand.New(rand.NewPCG(rng.Uint64(), uint64(w.index)))
	if wt.scenario.stepNoise != nil {
		noise = wt.scenario.stepNoise(int(w.index))
	}
	w.engine, err = gpu.NewEngine(gpu.EngineConfig{
		Profile: p, Limits: g.Limits, Salt: rng.Uint64(), Rand: noise, FastForward: true, HostBlocks: g.HostBlocks,
		OnStep: func(took time.Duration, decodes int) {
			w.busyTime += int64(took)
			if wt.loop.now >= int64(wt.scenario.WarmUp) && wt.loop.now < int64(wt.scenario.Duration) {
				wt.result.ITL.addRepeated(took+gpu.PerTokenTime, decodes)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	if took := w.runWarmUpRequest(wt.loop.timeAt(0).Add(-time.Second)); wt.scenario.scrapeAfterWarmUp {
		w.warmUpTime = int64(took)
	}
	w.profile, w.slowdown = p, 1
	if g.Slowdown > 0 {
		w.slowdown = g.Slowdown
	}
	w.engine.SetSlowdown(w.slowdown)
	w.model = p.Model
	w.costMicros = perfmodel.EstimatePrior(w.gpu, w.model).CostMicros
	return w, nil
}

// scheduleStep maintains one step event for the worker's engine, at the time that the engine requests.
func (wt *workerTier) scheduleStep(w *simulatedWorker) {
	next, ok := w.engine.NextEvent()
	if !ok || w.stallCauses > 0 || w.deathCauses > 0 {
		w.nextStepAt = noEvent
		return
	}
	if at := max(int64(next.Sub(wt.loop.startTime)), wt.loop.now); at != w.nextStepAt {
		w.nextStepAt = at
		wt.loop.addEvent(event{at: at, kind: evEngineStep, index: w.index})
	}
}

// runStep processes a due engine step and its tokens.
func (wt *workerTier) runStep(w *simulatedWorker) {
	if w.nextStepAt != wt.loop.now || w.stallCauses > 0 || w.deathCauses > 0 {
		return // rescheduled meanwhile
	}
	w.nextStepAt = noEvent
	now := wt.loop.currentTime()
	made := w.engine.AdvanceTo(now)
	for _, s := range made {
		wt.recordToken(s.Owner().(*simulatedRequest), s, now)
	}
	wt.scheduleStep(w)
	for _, a := range w.zone.instances {
		wt.zones.handleSettled(a)
	}
}

// setWorkerDead stops or restarts a worker's process.
func (wt *workerTier) setWorkerDead(w *simulatedWorker, dead bool) {
	w.deathCauses += causeDelta(dead)
	if !dead || w.deathCauses > 1 {
		return
	}
	w.engine.SettleTo(wt.loop.currentTime())
	for _, s := range w.engine.CancelAll() {
		x := s.Owner().(*simulatedRequest)
		if !x.ended && (x.balancer != nil || !x.instance.down) {
			wt.endLostAttempt(x, endConnectionLost, openai.CodeUpstream)
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

// restartWorker restarts a worker: at once, or after its weights are loaded at store GB/s. Until then its port
// refuses connections, and its zone's instances detect that by scrapes as for any dead worker.
func (wt *workerTier) restartWorker(w *simulatedWorker, store float64) {
	if store <= 0 {
		wt.setWorkerDead(w, false)
		return
	}
	w.restartCount++
	chance := rand.New(rand.NewPCG(wt.scenario.Seed, seedStarts<<32|w.restartCount<<24|uint64(w.index)))
	wt.loop.addEvent(event{at: wt.loop.now + int64(w.profile.ColdStart(store, true, chance)), kind: evWorkerReady, index: w.index})
}
