package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/perfmodel"
)

// simulatedWorker is one engine and its zone's static data of it.
type simulatedWorker struct {
	index        int32 // in topology.workers
	zone         *zoneState
	name         string
	gpu          string
	engine       *gpu.Engine
	nextStepAt   int64 // time of its scheduled step event; never if there is none
	busyTime     int64 // ns in steps
	requestCount int64
	costMicros   int64
	deathCauses  int // active causes of its death
	stallCauses  int
	refuseCauses int
	cuts         *Fault // the active WorkerCuts; nil: none
	// slowdown of its group.
	slowdown     float64
	profile      gpu.WorkerProfile
	restartCount uint64 // restarts of its process
	warmUpTime   int64  // ns from a zone's start until its warm-up request was answered
	model        string
	// earlierCounters is what its engines counted before the last restart.
	earlierCounters gpu.Counters
}

// refusesConnections reports whether new connections to the worker fail.
func (w *simulatedWorker) refusesConnections() bool { return w.deathCauses > 0 || w.refuseCauses > 0 }

// cutsStream reports whether the worker breaks a request's stream. Which requests it breaks does not depend on their order.
func (w *simulatedWorker) cutsStream(x *simulatedRequest) bool {
	f := w.cuts
	return f != nil && float64(splitMix64(x.req.ID^uint64(w.index)<<40)>>11)/(1<<53) < f.Share
}

const noEvent = int64(1) << 62

// runWarmUpRequest lets the engine answer the warm-up request of an Agent, and returns its duration.
func (w *simulatedWorker) runWarmUpRequest(now time.Time) time.Duration {
	s, err := w.engine.Submit(now, gpu.EngineRequest{PromptTokens: 2, OutputTokens: 1})
	for err == nil && !s.IsDone() {
		next, ok := w.engine.NextEvent()
		if !ok {
			return 0
		}
		w.engine.AdvanceTo(next)
	}
	if err != nil {
		return 0
	}
	_, _, _, ended := s.EventTimes()
	return ended.Sub(now) + gpu.FinishTime
}

// totalCounters are the worker's totals over all restarts.
func (w *simulatedWorker) totalCounters() gpu.Counters {
	a, b := w.earlierCounters, w.engine.Counters()
	return gpu.Counters{
		PromptTokens: a.PromptTokens + b.PromptTokens, GeneratedTokens: a.GeneratedTokens + b.GeneratedTokens, PrefixQueries: a.PrefixQueries + b.PrefixQueries,
		PrefixHits: a.PrefixHits + b.PrefixHits, Preemptions: a.Preemptions + b.Preemptions, Steps: a.Steps + b.Steps,
	}
}

// currentReading is the worker's current metrics.
func (w *simulatedWorker) currentReading(now time.Time) report.Reading {
	w.engine.SettleTo(now)
	g, c := w.engine.Gauges(), w.engine.Counters()
	return report.Reading{
		ReadAt: now, LoadReadAt: now, Running: int64(g.Running), Waiting: int64(g.Waiting), KVUsage: g.KVUsage, KVReported: true,
		KVTotal: int64(g.KVBlocks) * gpu.BlockTokens, PromptTokens: float64(c.PromptTokens), OutputTokens: float64(c.GeneratedTokens),
		PrefixQueries: float64(c.PrefixQueries), PrefixHits: float64(c.PrefixHits), Preemptions: float64(c.Preemptions),
	}
}

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
	observer  *observer
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
