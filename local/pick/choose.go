package pick

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/local/perfmodel"
)

// ChooseWorker picks the worker for q. When there is none, ok is false and Choice.Reason is the reason. It allocates
// nothing when rec is nil.
func ChooseWorker(q *PlacementQuery, v *WorkerView, now time.Time, rng *rand.Rand, rec *explain.Explanation) (Choice, bool) {
	v.placement.peeking = false
	out, ok := v.placement.placeQuery(q, now, rng, rec)
	if ok {
		v.drains.accrueRequest(v, out.Index)
	}
	return out, ok
}

// PeekWorker returns what ChooseWorker would return, without advancing round-robin turns or drain quotas.
func PeekWorker(q *PlacementQuery, v *WorkerView, now time.Time, rng *rand.Rand, rec *explain.Explanation) (Choice, bool) {
	v.placement.peeking = true
	return v.placement.placeQuery(q, now, rng, rec)
}

// placement places one query: it has the request in the units of the cost model and the scratch space of the choice.
// Policies read it and its view, and write only costs.
type placement struct {
	*WorkerView // read only, except for the turns of policies that take turns

	request
	match           prefixMatch
	peeking         bool           // turns do not advance
	poolsMatter     bool           // pools matter to this query
	unpooledAllowed bool           // workers in no pool may be chosen
	searching       bool           // only workers that may be the best are screened: see searchWorkers
	noneReason      string         // the most favourable reason why a screened worker is not a candidate
	anyPooledRoom   bool           // the request's pools allow some worker
	pruner          pruner         // what is known of the best cost while workers are screened
	candidates      []int32        // as indices into Workers
	invalidParams   []int32        // workers with room but invalid learned parameters
	drainHeldBack   []int32        // workers with room that a drain keeps the request away from
	loads           []screenedLoad // found on each worker during screening, by index into Workers
	costs           []float64      // the candidates' costs in the policy's own unit, by index into Workers
}

// request is the request that is being placed, in the units of the cost model.
type request struct {
	query         *PlacementQuery
	wallClock     time.Time
	ledgerClock   int64 // the ledger's clock, in nanoseconds
	rng           *rand.Rand
	promptCount   int64
	outputCount   int64   // expected output, in tokens
	kvNeed        int64   // KV cache it needs, in tokens
	certainPrompt int64   // lower bound of its longest prompt, in tokens
	promptTokens  float64 // prompt in tokens
	outputTokens  float64 // expected output in tokens
	meanContext   float64 // mean context during decode, in thousands of tokens
	backlogLimit  float64 // maximum prefill backlog, in seconds; 0 means no limit
}

// screenedLoad is the load that screening found on a worker.
type screenedLoad struct {
	backlogTokens float64 // prefill backlog including lateTokens
	lateTokens    float64 // what the worker would have prefilled in the time by which it is late
}

func newPlacement(v *WorkerView) placement {
	n := len(v.Workers)
	return placement{
		WorkerView: v, candidates: make([]int32, 0, n), invalidParams: make([]int32, 0, n),
		loads: make([]screenedLoad, n), costs: make([]float64, n),
	}
}

// placeQuery chooses in four steps: workers with room are candidates, filters for fair share, time per output token and
// adapter reduce them, and the policy picks one.
func (p *placement) placeQuery(q *PlacementQuery, now time.Time, rng *rand.Rand, rec *explain.Explanation) (Choice, bool) {
	p.setRequest(q, now, rng)
	rule := p.Policy.ruleOf()
	if rec.IsRecording() {
		rec.Policy = rule.name
		rec.Query = fmt.Sprintf("prompt=%d output=%d class=%s", q.PromptTokens, q.OutputTokens, q.Class)
	}
	p.refreshInputs()
	p.match.matchPrompt(p.WorkerView, q, p.promptCount)
	p.pruner.enabled = p.Policy == Predictive && !q.Share.OverShare && q.SLO.TPOT <= 0 && !rec.IsRecording()
	reason := p.screenPools(rec)
	if q.Share.OverShare && len(p.candidates) > 0 {
		filterOverShare(p, rec)
		reason = ReasonBusy
	}
	if len(p.candidates) > 0 && !filterByTPOT(p, rec) {
		reason = ReasonBusy
	}
	if len(p.candidates) == 0 {
		rec.SetChosen("", reason)
		return Choice{Index: -1, ID: -1, Reason: reason}, false
	}
	if p.hasAdapters && p.Policy != Predictive {
		filterByAdapter(p)
	}
	at := rule.choose(p)
	w := &p.Workers[at]
	if rec.IsRecording() {
		p.recordCosts(rule, rec)
		rec.SetChosen(w.Name, rule.reason)
	}
	cached := int64(p.match.tokensOn(w.ID))
	t := p.predictTerms(at)
	out := Choice{
		Index: int(at), ID: w.ID, Reason: rule.reason, PredictedTTFT: t.boundedTTFT(), CachedTokens: cached, KnownTokens: cached,
		Considered: len(p.Workers), Terms: t.choiceTerms(),
	}
	if p.match.holdsLongest(w.ID) {
		out.KnownTokens -= int64(p.match.suffixTokens)
		out.LongestHolder, out.SoleHolder = true, p.match.index.HasSoleHolder()
	}
	return out, true
}

func (p *placement) setRequest(q *PlacementQuery, now time.Time, rng *rand.Rand) {
	prompt := max(0, min(q.PromptTokens, perfmodel.MaxRequestTokens))
	out := max(0, min(q.OutputTokens, perfmodel.MaxRequestTokens))
	longest := min(q.longestPrompt(), perfmodel.MaxRequestTokens)
	p.request = request{
		query: q, wallClock: now, ledgerClock: p.Ledger.ClockAt(now), rng: rng, promptCount: prompt, outputCount: out,
		kvNeed: min(q.KVTokens(), 2*perfmodel.MaxRequestTokens), certainPrompt: longest * certainPromptNumerator / certainPromptDenominator,
		promptTokens: float64(prompt), outputTokens: float64(out), meanContext: (float64(prompt) + float64(out)/2) / kilo, backlogLimit: max(q.MaxWait, 0).Seconds(),
	}
}

// Choice is the chosen worker and the reason.
type Choice struct {
	// Index into WorkerView.Workers; ID is the worker's ledger slot.
	Index int
	ID    int32
	// Reason is a stable code: the policy's when a worker was chosen, otherwise why none was.
	Reason string
	// PredictedTTFT is the predicted time to first token, in seconds.
	PredictedTTFT float64
	// CachedTokens is the estimated part of the prompt that the worker has cached, in tokens.
	CachedTokens int64
	// KnownTokens is the part of it that is in the index; the rest is estimated by SuffixHitRate.
	KnownTokens int64
	// LongestHolder is set if no worker is known to hold more of the prompt, SoleHolder if no other holds as much.
	LongestHolder, SoleHolder bool
	// Considered is the number of workers that the choice was made among, ineligible ones included.
	Considered int
	// Terms are the worker's predicted seconds, for every policy.
	Terms ChoiceTerms
}

// ChoiceTerms are the predicted seconds of a chosen worker by term, as an explanation shows them.
type ChoiceTerms struct {
	Wait, Prefill, KVWait, Decode, Adapter float64
}

// Reasons of a choice without a worker.
const (
	ReasonNoWorker = "no_worker" // no worker serves the model now: waiting in the queue is of no use
	ReasonBusy     = "busy"      // some worker will have room
	ReasonTooLong  = "too_long"  // no worker could ever hold the request
	ReasonNoPool   = "no_pool"   // the model has workers, but none in the request's pools
)
