package pick

import (
	"math"

	"github.com/spillway-lb/spillway/local/inflight"
	"github.com/spillway-lb/spillway/local/prefix"
)

// kilo is the tokens in the unit of Rates.StepContext and Rates.AttentionSlope.
const kilo = 1000.0

// WorkerView is the input of one choice: a snapshot of the workers, the ledger and the index. The ledger and the index
// belong to the one writer; a choice only reads them. Create it with NewWorkerView and do not copy it.
type WorkerView struct {
	// Workers are those that serve the model, in any stable order. Change one with SetWorker, never in place.
	Workers []WorkerSnapshot
	// Ledger has what was dispatched.
	Ledger *inflight.Ledger
	// Index has the cached prefixes; nil when prefixes are not used.
	Index *prefix.Index
	// Policy decides among the candidates.
	Policy Policy
	// LongShare is the part of a worker's KV cache that long requests may hold together; 0 means half. Set it before
	// the first choice.
	LongShare float64
	// OverlapWeight is the cost of a prefill block in overlap_cost, in decode blocks; 0 means 1.
	OverlapWeight float64
	// Temperature is the randomness of overlap_cost; 0 always picks the least cost.
	Temperature float64
	// SuffixHits is the measured hit rate after the longest known prefix of a prompt; nil counts as 0.
	SuffixHits *prefix.SuffixHitRate

	roomInputs  []roomInputs // by index into Workers, as all slices here
	costInputs  []costInputs
	weights     []float64 // weight times share
	maxShare    float64   // greatest share of any worker that is up; shares count relative to it
	dirty       bool      // maxShare must be computed again
	hasAdapters bool      // some worker reports whether it holds the model's adapter
	anyPooled   bool      // some worker is dedicated to a pool

	turns     turnState
	drains    drainQuotas
	groups    *workerGroups // of a large view; nil otherwise
	placement placement     // the choice under way, or the last one
}

// roomInputs is the part of a WorkerSnapshot that decides whether it has room, with what can be precomputed. Every
// choice reads those of all workers in order; each fills a cache line.
type roomInputs struct {
	prefillRate float64 // prefill tokens/s
	trustedRate float64 // of which its share may be used
	prefillBase float64 // constant part of a first token, in seconds
	kvTotal     int64   // 0 when unknown
	kvAdmitted  int64   // KV tokens that may be reserved
	maxPrompt   int64   // prompt, in tokens
	slots       int32
	id          int32
	maxTrials   int32
	down        bool
	invalid     bool
	draining    bool
}

// kvLimit returns the maximum KV tokens that foreign and reserved sequences may hold. Foreign tokens are in use for
// certain, so overcommit applies only to the rest.
func (b *roomInputs) kvLimit(foreign int64) int64 {
	if b.kvAdmitted <= b.kvTotal {
		return b.kvAdmitted
	}
	return b.kvAdmitted - int64(float64(b.kvAdmitted-b.kvTotal)*min(float64(foreign)/float64(b.kvTotal), 1))
}

// costInputs is the part of a WorkerSnapshot that determines the request's cost. It fills a cache line.
type costInputs struct {
	prefillRate     float64 // prefill tokens/s
	secondsPerToken float64 // seconds for an uncached token, including share and weight
	prefillBase     float64 // constant part of a first token, in seconds
	hitRate         float64 // measured part of predicted prefix hits
	seqSlope        float64 // seconds that a sequence adds to a step
	contextSlope    float64 // seconds that a thousand tokens of context add to a step
	attentionSlope  float64 // relative slowdown of a prompt token per token before it
	queueingFactor  float32 // WorkerSnapshot.QueueingFactor; float32 so that the struct fills its cache line
	id              int32
}

// NewWorkerView returns a view with scratch space for its workers.
func NewWorkerView(workers []WorkerSnapshot, ledger *inflight.Ledger, index *prefix.Index, policy Policy) *WorkerView {
	n := len(workers)
	v := &WorkerView{
		Workers: workers, Ledger: ledger, Index: index, Policy: policy, dirty: true,
		roomInputs: make([]roomInputs, n), costInputs: make([]costInputs, n), weights: make([]float64, n),
		turns: turnState{credit: make([]float64, n)}, drains: drainQuotas{quota: make([]float64, n)},
	}
	v.placement = newPlacement(v)
	for i := range workers {
		workers[i].nameHash = hashName(workers[i].Name)
	}
	if n >= searchedFrom {
		v.groups = newWorkerGroups(v)
	}
	return v
}

// SetWorker replaces the snapshot of one worker.
func (v *WorkerView) SetWorker(at int, w WorkerSnapshot) {
	old, pools := v.Workers[at].shareIfUp(), v.Workers[at].Pools
	if w.Name == v.Workers[at].Name {
		w.nameHash = v.Workers[at].nameHash
	} else {
		w.nameHash = hashName(w.Name)
	}
	v.Workers[at] = w
	if v.groups != nil && w.Pools != pools {
		v.groups.noteEdit(at)
	}
	if s := w.shareIfUp(); s > v.maxShare || s < old && old >= v.maxShare {
		v.dirty = true
	}
	if !v.dirty {
		v.computeInputs(at)
	}
}

// refreshInputs recomputes all inputs after the greatest share has changed.
func (v *WorkerView) refreshInputs() {
	if !v.dirty {
		return
	}
	v.maxShare, v.hasAdapters, v.anyPooled, v.dirty = 0, false, false, false
	for i := range v.Workers {
		v.maxShare = max(v.maxShare, v.Workers[i].shareIfUp())
	}
	for i := range v.Workers {
		v.computeInputs(i)
	}
}

// computeInputs computes the inputs of one worker.
func (v *WorkerView) computeInputs(at int) {
	w := &v.Workers[at]
	r := &w.Rates
	share := v.relativeShare(at)
	power := w.weightOrDefault() * share
	kv := max(w.KVTotal, 0)
	g := roomInputs{
		prefillRate: r.PrefillRate, trustedRate: r.PrefillRate * share, prefillBase: r.PrefillBase, kvTotal: kv, kvAdmitted: int64(float64(kv) * w.overcommitFactor()),
		maxPrompt: math.MaxInt64, slots: math.MaxInt32, id: w.ID, maxTrials: w.MaxTrials, down: w.DownReason != "", invalid: w.hasInvalidParams(),
	}
	if w.Slots > 0 {
		g.slots = int32(min(w.Slots, math.MaxInt32))
	}
	if w.MaxContext > 0 {
		g.maxPrompt = w.MaxContext
	}
	if kv > 0 {
		g.maxPrompt = min(g.maxPrompt, kv)
	}
	if w.DrainPart > 0 {
		stays := max(0, 1-w.DrainPart)
		v.drains.active = true
		g.draining, g.kvAdmitted = true, int64(float64(g.kvAdmitted)*stays)
		if w.Slots > 0 {
			g.slots = max(1, int32(math.Ceil(float64(g.slots)*stays)))
		}
	}
	c := costInputs{
		prefillRate: r.PrefillRate, secondsPerToken: 1 / (r.PrefillRate * power), prefillBase: r.PrefillBase, hitRate: r.EffectiveHitRate(),
		seqSlope: r.StepSlope, contextSlope: r.StepContext, attentionSlope: max(r.AttentionSlope, 0) / kilo, queueingFactor: float32(max(w.QueueingFactor, 0)), id: w.ID,
	}
	if v.groups != nil && (g != v.roomInputs[at] || c != v.costInputs[at]) {
		v.groups.noteEdit(at)
	}
	v.roomInputs[at], v.costInputs[at] = g, c
	v.weights[at] = power
	v.hasAdapters = v.hasAdapters || w.Adapter != AdapterNone
	v.anyPooled = v.anyPooled || w.Pools != 0
}

// relativeShare returns the worker's share relative to the greatest one, without its weight.
func (v *WorkerView) relativeShare(at int) float64 {
	return v.Workers[at].shareOrDefault() / max(v.maxShare, 1e-9)
}

// ResumeTurns copies the round-robin and drain state of an older view, so that a new snapshot does not reset it.
func (v *WorkerView) ResumeTurns(old *WorkerView) {
	if old == nil {
		return
	}
	v.turns.cursor = old.turns.cursor
	quota := make(map[int32]float64)
	credit := make(map[int32]float64, len(old.Workers))
	for i := range old.Workers {
		credit[old.Workers[i].ID] = old.turns.credit[i]
		if old.drains.quota[i] > 0 {
			quota[old.Workers[i].ID] = old.drains.quota[i]
		}
	}
	for i := range v.Workers {
		v.turns.credit[i], v.drains.quota[i] = credit[v.Workers[i].ID], quota[v.Workers[i].ID]
	}
}
