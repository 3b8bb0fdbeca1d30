package pick

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/explain"
)

// Choose picks the worker for q, or says by the verdict's reason why there is none. It allocates nothing when rec is nil.
func Choose(q *Query, v *View, now time.Time, rng *rand.Rand, rec *explain.Record) (Verdict, bool) {
	if rec.On() {
		rec.Policy = v.Policy.String()
		rec.Query = fmt.Sprintf("prompt=%d output=%d class=%s", q.PromptTokens, q.OutputTokens, q.Class)
	}
	v.match(q)
	reason := v.screen(q, v.Ledger.clock(now), rec)
	if len(v.cands) == 0 {
		rec.Choose("", reason)
		return Verdict{Index: -1, ID: -1, Reason: reason}, false
	}
	var at int32
	switch v.Policy {
	case RoundRobin:
		at = v.roundRobin(q, rec)
	case LeastConnections:
		at = v.leastConnections(q, rng, rec)
	case PowerOfTwo:
		at = v.powerOfTwo(q, rng, rec)
	default:
		at = v.predictive(q, rng, rec)
	}
	w := &v.Workers[at]
	rec.Choose(w.Name, v.Policy.reason())
	return Verdict{
		Index: int(at), ID: w.ID, Reason: v.Policy.reason(),
		Seconds: v.ttft(q, at), Cached: int64(v.cached[at]),
	}, true
}

// match fills v.cached from the prefix index.
func (v *View) match(q *Query) {
	if v.Index == nil || len(q.Blocks) == 0 || q.PromptBytes <= 0 {
		clear(v.cached)
		return
	}
	v.Index.match(q.Blocks)
	perByte := float64(q.PromptTokens) / float64(q.PromptBytes)
	for i := range v.Workers {
		v.cached[i] = cachedTokens(v.Index.matched(v.Workers[i].ID), perByte, q)
	}
}

// cachedTokens turns matched blocks into prompt tokens. A hit never covers the last token: the engine must compute it.
func cachedTokens(blocks int, perByte float64, q *Query) int32 {
	if blocks == 0 {
		return 0
	}
	return int32(max(0, min(int64(float64(blockEnd(blocks))*perByte), q.PromptTokens-1)))
}

// screen fills v.cands with the workers that have room, and names the best hope when there is none.
func (v *View) screen(q *Query, now int64, rec *explain.Record) string {
	v.cands = v.cands[:0]
	reason := ReasonNoWorker
	top := 0.0
	for i := range v.Workers {
		if w := &v.Workers[i]; w.Down == "" {
			top = max(top, w.share())
		}
	}
	v.perTop = 1 / max(top, 1e-9)
	for i := range v.Workers {
		w := &v.Workers[i]
		drop := v.room(q, int32(i), now)
		if drop == "" {
			v.cands = append(v.cands, int32(i))
			continue
		}
		if rec.On() {
			rec.Candidate(w.Name).Drop(drop)
		}
		switch drop {
		case dropSlots, dropKV, dropLong, dropBacklog, dropTrial:
			reason = ReasonBusy
		case dropNever:
			if reason == ReasonNoWorker {
				reason = ReasonTooLong
			}
		}
	}
	return reason
}

// What drops a worker.
const (
	dropExcluded = "failed this request"
	dropTrial    = "on trial"
	dropSlots    = "no free sequence"
	dropKV       = "no free KV cache"
	dropLong     = "long prompts have their share"
	dropBacklog  = "prefill backlog over the target"
	dropNever    = "longer than the worker takes"
)

// room says why worker at has no room for q now; empty when it has.
func (v *View) room(q *Query, at int32, now int64) string {
	w := &v.Workers[at]
	if w.Down != "" {
		return w.Down
	}
	if len(q.Exclude) > 0 && slices.Contains(q.Exclude, w.ID) {
		return dropExcluded
	}
	need := q.PromptTokens + q.OutputTokens
	// An estimate may be a quarter too long, and what might fit must reach the engine, which counts exactly.
	if sure := q.PromptTokens * 4 / 5; w.MaxContext > 0 && sure >= w.MaxContext || w.KVTotal > 0 && sure >= w.KVTotal {
		return dropNever
	}
	s := v.Ledger.at(w.ID)
	if s == nil {
		return dropNever
	}
	back := s.backlogAt(now, w.Rates.PrefillRate)
	v.back[at] = back
	seqs := s.seqs()
	if w.Trials > 0 && s.running >= w.Trials {
		return dropTrial
	}
	if seqs == 0 {
		return ""
	}
	if w.Slots > 0 && seqs >= w.Slots {
		return dropSlots
	}
	if w.KVTotal > 0 {
		if s.heldKV()+need > w.KVTotal {
			return dropKV
		}
		if isLong(need, w.KVTotal) && s.longKV > 0 && s.longKV+need > w.KVTotal/2 {
			return dropLong
		}
	}
	if q.MaxWait > 0 && back > q.MaxWait.Seconds()*w.Rates.PrefillRate*v.share(w) {
		return dropBacklog
	}
	return ""
}

// isLong says whether a request is so large for its worker that it may hold only a share of it.
func isLong(need, total int64) bool { return need > total/4 }

// share is the worker's own, relative to the greatest.
func (v *View) share(w *Worker) float64 { return w.share() * v.perTop }

func (w *Worker) share() float64 {
	if w.Share <= 0 || w.Share > 1 {
		return 1
	}
	return w.Share
}

func (w *Worker) weight() float64 {
	if w.Weight <= 0 {
		return 1
	}
	return w.Weight
}

// lightest returns the candidate with the least cost in v.costs, ties within slack at random.
func (v *View) lightest(rng *rand.Rand, slack func(best float64) float64) int32 {
	best := v.costs[v.cands[0]]
	for _, at := range v.cands[1:] {
		best = min(best, v.costs[at])
	}
	limit := best + slack(best)
	var chosen int32 = -1
	seen := 0
	for _, at := range v.cands {
		if v.costs[at] > limit {
			continue
		}
		seen++
		if chosen < 0 || rng.IntN(seen) == 0 {
			chosen = at
		}
	}
	return chosen
}

func exact(float64) float64 { return 0 }
