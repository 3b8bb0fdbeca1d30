package pick

import (
	"math"

	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/inflight"
	"github.com/spillway-lb/spillway/local/prefix"
)

// kilo is the tokens in the unit of Rates.StepContext and Rates.AttentionSlope.
const kilo = 1000.0

// WorkerView is the input of one choice: a snapshot of the workers, the ledger and the index. The ledger and the index
// belong to the one writer; a choice only reads them, except for their scratch space. Create it with NewWorkerView.
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

	admissionInputs []admissionInputs // what every choice reads of every worker, contiguous
	costInputs      []costInputs      // what it reads of every candidate
	boundInputs     []boundInputs     // inputs of the lower bound of the cost
	maxShare        float64           // greatest share of any worker that is up; shares count relative to it
	dirty           bool              // maxShare must be computed again
	hasAdapters     bool              // some worker reports whether it holds the model's adapter
	turnCursor      uint32            // round robin's position
	drainQuota      []float64         // requests that each draining worker may take now
	anyDraining     bool              // some worker has a drain under way
	turnCredit      []float64         // weighted round robin's credit, by worker

	requestParams
	peeking         bool
	pruning         bool                           // workers above the best cost are skipped
	bestCost        float64                        // least cost found so far
	pruneLimit      float64                        // cost above which no worker can be near the best
	anyPooled       bool                           // some worker is dedicated to a pool
	poolsMatter     bool                           // pools matter to the current choice
	unpooledAllowed bool                           // workers in no pool may be chosen in it
	suffixTokens    int32                          // tokens that the longest prefix's holders are expected to have beyond what is known
	prefixKnown     bool                           // some worker holds the beginning of the prompt
	candidates      []int32                        // candidates of the current choice, as indices into Workers
	invalidParams   []int32                        // workers with room but invalid learned parameters
	drainHeldBack   []int32                        // workers with room that a drain keeps the request away from
	costs           []float64                      // the candidates' costs in the policy's own unit, by index into Workers
	loads           []screenedLoad                 // load found on each worker during screening
	cachedTokens    []int32                        // cached tokens of the prompt, by candidate
	blockTokens     [blockhash.MaxBlocks + 1]int32 // prompt tokens in so many of its blocks
}

// admissionInputs is the part of a WorkerSnapshot that decides whether it has room, with what can be precomputed. Every
// choice reads those of all workers in order; each fills a cache line.
type admissionInputs struct {
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
func (b *admissionInputs) kvLimit(foreign int64) int64 {
	if b.kvAdmitted <= b.kvTotal {
		return b.kvAdmitted
	}
	return b.kvAdmitted - int64(float64(b.kvAdmitted-b.kvTotal)*min(float64(foreign)/float64(b.kvTotal), 1))
}

// contendedBacklog is the prefill that keeps an engine busy until it can be sent more, in seconds: a step and its
// scheduling. More would only wait in the engine, where no request can overtake it. It does not depend on the learned
// PrefillBase, which includes the delay of the engine's own queue: the two would reinforce each other.
const contendedBacklog = 0.05

// screenedLoad is the load that a choice found on a worker.
type screenedLoad struct {
	backlogTokens  float64 // prefill backlog, in tokens
	seqs           float64 // sequences
	heldKilotokens float64 // KV cache held by them, in thousands of tokens
	kvTight        bool    // so little KV cache is free that the request would wait for it
}

// costInputs is the part of a WorkerSnapshot that determines the request's cost.
type costInputs struct {
	secondsPerToken float64 // seconds for an uncached token, including share and weight
	prefillBase     float64
	hitRate         float64 // measured part of predicted prefix hits
	attentionSlope  float64 // relative slowdown of a prompt token per token before it
	seqSlope        float64 // seconds that a sequence adds to a step
	contextSlope    float64 // seconds that a thousand tokens of context add to a step
	stepBase        float64
	effectiveWeight float64 // weight times share
	prefillRate     float64 // prefill tokens/s
	kvTotal         int64   // 0 when unknown
	queueingFactor  float32 // WorkerSnapshot.QueueingFactor; float32 so that the struct fills its cache line
	id              int32
}

// NewWorkerView returns a view with scratch space for its workers.
func NewWorkerView(workers []WorkerSnapshot, ledger *inflight.Ledger, index *prefix.Index, policy Policy) *WorkerView {
	n := len(workers)
	v := &WorkerView{
		Workers: workers, Ledger: ledger, Index: index, Policy: policy, dirty: true,
		admissionInputs: make([]admissionInputs, n), costInputs: make([]costInputs, n), boundInputs: make([]boundInputs, n), turnCredit: make([]float64, n), drainQuota: make([]float64, n), candidates: make([]int32, 0, n), invalidParams: make([]int32, 0, n),
		costs: make([]float64, n), loads: make([]screenedLoad, n), cachedTokens: make([]int32, n),
	}
	for i := range workers {
		workers[i].nameHash = hashName(workers[i].Name)
	}
	return v
}

// SetWorker replaces the snapshot of one worker.
func (v *WorkerView) SetWorker(at int, w WorkerSnapshot) {
	old := v.Workers[at].shareIfUp()
	if w.Name == v.Workers[at].Name {
		w.nameHash = v.Workers[at].nameHash
	} else {
		w.nameHash = hashName(w.Name)
	}
	v.Workers[at] = w
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
	share := w.shareOrDefault() / max(v.maxShare, 1e-9)
	power := w.weightOrDefault() * share
	kv := max(w.KVTotal, 0)
	g := admissionInputs{
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
		v.anyDraining = true
		g.draining, g.kvAdmitted = true, int64(float64(g.kvAdmitted)*stays)
		if w.Slots > 0 {
			g.slots = max(1, int32(math.Ceil(float64(g.slots)*stays)))
		}
	}
	v.admissionInputs[at] = g
	v.costInputs[at] = costInputs{
		secondsPerToken: 1 / (r.PrefillRate * power), prefillBase: r.PrefillBase, hitRate: r.EffectiveHitRate(), attentionSlope: max(r.AttentionSlope, 0) / kilo, seqSlope: r.StepSlope, contextSlope: r.StepContext,
		stepBase: r.StepBase, effectiveWeight: power, prefillRate: r.PrefillRate, kvTotal: kv, queueingFactor: float32(max(w.QueueingFactor, 0)), id: w.ID,
	}
	v.boundInputs[at] = boundInputs{prefillRate: r.PrefillRate, secondsPerToken: 1 / (r.PrefillRate * power), prefillBase: r.PrefillBase, hitRate: r.EffectiveHitRate(), attentionSlope: max(r.AttentionSlope, 0) / kilo, seqSlope: r.StepSlope, contextSlope: r.StepContext, queueingFactor: float32(max(w.QueueingFactor, 0)), id: w.ID}
	v.hasAdapters = v.hasAdapters || w.Adapter != AdapterNone
	v.anyPooled = v.anyPooled || w.Pools != 0
}

// ResumeTurns copies the round-robin and drain state of an older view, so that a new snapshot does not reset it.
func (v *WorkerView) ResumeTurns(old *WorkerView) {
	if old == nil {
		return
	}
	v.turnCursor = old.turnCursor
	quota := make(map[int32]float64)
	credit := make(map[int32]float64, len(old.Workers))
	for i := range old.Workers {
		credit[old.Workers[i].ID] = old.turnCredit[i]
		if old.drainQuota[i] > 0 {
			quota[old.Workers[i].ID] = old.drainQuota[i]
		}
	}
	for i := range v.Workers {
		v.turnCredit[i], v.drainQuota[i] = credit[v.Workers[i].ID], quota[v.Workers[i].ID]
	}
}

// maxDrainQuota bounds the requests that a draining worker may catch up on.
const maxDrainQuota = 8

// accrueDrainQuota gives each draining worker its part of a request that was placed: its part of the speed of all
// workers that are up, less the part that the drain keeps away. A part of the choices alone would not suffice: the
// policy prefers a worker with less load in the remaining ones.
func (v *WorkerView) accrueDrainQuota(chosen int) {
	if !v.anyDraining {
		return
	}
	total := 0.0
	for i := range v.admissionInputs {
		if g := &v.admissionInputs[i]; !g.down && !g.invalid {
			total += g.prefillRate
		}
	}
	v.anyDraining = false
	for i := range v.admissionInputs {
		g := &v.admissionInputs[i]
		if !g.draining {
			v.drainQuota[i] = 0
			continue
		}
		v.anyDraining = true
		v.drainQuota[i] = min(v.drainQuota[i]+max(0, 1-v.Workers[i].DrainPart)*g.prefillRate/max(total, g.prefillRate), maxDrainQuota)
		if i == chosen {
			v.drainQuota[i] = max(0, v.drainQuota[i]-1)
		}
	}
}

// sequencesOn returns the sequences on a worker, our own and foreign ones.
func (v *WorkerView) sequencesOn(at int32) float64 {
	return float64(v.Ledger.TotalsOf(v.costInputs[at].id).Sequences())
}
