package sim

import (
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/local/engine/report"
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
	// slowdown of its group.
	slowdown     float64
	profile      gpu.WorkerProfile
	restartCount uint64 // restarts of its process
	warmUpTime   int64  // ns from a zone's start until its warm-up request was answered
	model        string
	// earlierCounters is what its engines counted before the last restart.
	earlierCounters gpu.Counters
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
