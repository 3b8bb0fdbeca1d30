package sched

import (
	"time"

	"github.com/spillway-lb/spillway/local/perfmodel"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/prefix"
	"github.com/spillway-lb/spillway/local/queue"
)

// modelGroup is the state of one model: its workers, view and queue.
type modelGroup struct {
	model         string
	view          *pick.WorkerView
	workers       []*Worker // in the order of view.Workers
	queue         *queue.Queue[*Request]
	promptTokens  movingAverage        // prompt lengths, in tokens
	prefillPace   movingAverage        // prefill time of its workers, in seconds per prompt token
	acceptance    acceptanceCounts     // workers that should take requests, and those that do
	panicMode     bool                 // so few workers take requests that suspected ones are used too
	countRatio    movingAverage        // counted over estimated prompt tokens
	turns         map[uint64]*poolTurn // by the pools of requests
	suffixHitRate prefix.SuffixHitRate // what its workers have cached beyond the known prefix
	sketch        prefixSketch         // Prompt prefixes that its workers have cached
	// predictionErrors are the prediction errors of streams (0) and of other answers (1).
	predictionErrors [2]perfmodel.PredictionError
}

// decayEstimates decays pessimistic estimates of the model's idle workers toward the median of the active ones. A
// worker estimated as slow gets no traffic, so its estimate could never recover otherwise. A worker that serves
// several models is compared in its first one only. A worker owned by another instance is skipped, because it is not
// idle. Without active workers there is nothing to compare with, and no estimate changes.
func (p *modelGroup) decayEstimates(now time.Time) {
	var prefill, step []float64
	for _, w := range p.workers {
		if a, b, ok := w.learner.RelativePace(); ok {
			prefill, step = append(prefill, a), append(step, b)
		}
	}
	a, b := perfmodel.SortedMedian(prefill), perfmodel.SortedMedian(step)
	p.updateCohorts(now)
	p.balanceColdArrivals(now)
	for _, w := range p.workers {
		if len(w.viewSlots) == 0 || w.viewSlots[0].group != p {
			continue
		}
		if w.otherOwner == "" {
			w.learner.DecayToCohort(a, b, now)
		}
		w.refreshViews(now)
	}
}

// updateCohorts compares the model's workers with each other, so that workers of equal speed count as equal.
func (p *modelGroup) updateCohorts(now time.Time) {
	list := make([]*perfmodel.RateLearner, 0, len(p.workers))
	for _, w := range p.workers {
		if len(w.viewSlots) > 0 && w.viewSlots[0].group == p {
			list = append(list, w.learner)
		}
	}
	perfmodel.UpdateCohorts(list, now)
}

// balanceColdArrivals records what the model's workers are sent, and redistributes the arrivals without affinity
// among those that are up.
func (p *modelGroup) balanceColdArrivals(now time.Time) {
	up := make([]*perfmodel.ArrivalStats, 0, len(p.workers))
	for _, w := range p.workers {
		if len(w.viewSlots) == 0 || w.viewSlots[0].group != p {
			continue
		}
		w.arrivals.ObserveSent(p.view.Ledger.SentCounts(w.ledgerID), w.learner.Rates().PrefillRate, now)
		if w.DownReason() == "" {
			up = append(up, &w.arrivals)
		}
	}
	perfmodel.BalanceFreeArrivals(up)
}

// acceptanceCounts counts a model's workers that should take requests (total) and those of them that do (taking). The counts
// are kept as workers change: a pass over all workers for each scrape would take a quarter of a core among 1,000.
type acceptanceCounts struct{ taking, total int }

// countWorker updates the counts after a worker has changed.
func (p *modelGroup) countWorker(w *Worker, s *viewSlot) {
	now := acceptanceCounts{}
	if !w.removed && !w.drained && w.otherOwner == "" && w.hasModel(p.model) {
		now.total = 1
		if w.breaker.State().AcceptsRequests() {
			now.taking = 1
		}
	}
	p.acceptance.taking += now.taking - s.counted.taking
	p.acceptance.total += now.total - s.counted.total
	s.counted = now
}

// admitInPanic makes a suspected worker eligible while its model is in panic mode.
func (p *modelGroup) admitInPanic(w *Worker, v pick.WorkerSnapshot) pick.WorkerSnapshot {
	if p.panicMode && !w.removed && !w.drained && w.otherOwner == "" && w.hasModel(p.model) && w.breaker.UsableInPanic() {
		v.DownReason = ""
	}
	return v
}

// predictionErrorFor returns the prediction error of the model's streams, or of its other answers.
func (p *modelGroup) predictionErrorFor(v *Request) *perfmodel.PredictionError {
	if v.Envelope.Stream {
		return &p.predictionErrors[0]
	}
	return &p.predictionErrors[1]
}

// notePrompt records that a request's prompt was sent to a worker.
func (p *modelGroup) notePrompt(v *Request, now time.Time) {
	if len(v.Landmarks) == 0 {
		return
	}
	if p.sketch.hotPrefixes == nil {
		p.sketch.hotPrefixes = prefix.NewHotPrefixes()
	}
	p.sketch.hotPrefixes.RecordPrompt(v.Landmarks, v.Query.Blocks, v.Query.PromptTokens, int64(len(v.Envelope.Prompt)), now)
}

// poolTurn is the request that has waited the longest for room on the workers of its own pool, while workers of other pools have
// room. The queue lets all others overtake such a request, so that no pool waits for another. Requests of the same pool could
// then take every free slot before it; overtakenBy bounds that.
type poolTurn struct {
	request     *Request
	overtakenBy int
}

// maxOvertakes is how many requests of its own pool may overtake such a request. Then they wait until it is placed.
const maxOvertakes = 64

// takeTurn makes a request its pool's poolTurn, unless there is one.
func (p *modelGroup) takeTurn(v *Request) {
	if v.Query.Only != nil || p.turnFor(v) != nil || !pick.IsBlockedByPool(p.view) { // one proxy's subset must not hold up a pool
		return
	}
	if p.turns == nil {
		p.turns = map[uint64]*poolTurn{}
	}
	p.turns[v.Query.Pools] = &poolTurn{request: v} // bounded by the pools of a spec and their overlaps
}

// turnFor returns the poolTurn of a request's pool; nil when there is none that still waits.
func (p *modelGroup) turnFor(v *Request) *poolTurn {
	t := p.turns[v.Query.Pools]
	if t != nil && !t.request.QueueItem.IsWaiting() {
		delete(p.turns, v.Query.Pools)
		return nil
	}
	return t
}

// mustYield reports whether a request must wait for its pool's poolTurn.
func (p *modelGroup) mustYield(v *Request) bool {
	t := p.turnFor(v)
	return t != nil && t.request != v && t.overtakenBy >= maxOvertakes
}

// recordTurn records that a request was placed.
func (p *modelGroup) recordTurn(v *Request) {
	if t := p.turnFor(v); t != nil && t.request != v {
		t.overtakenBy++
	} else if t != nil {
		delete(p.turns, v.Query.Pools)
	}
}
