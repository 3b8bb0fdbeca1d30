package pick

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/inflight"
	"github.com/spillway-lb/spillway/local/perfmodel"
)

// ChooseWorker picks the worker for q. When there is none, ok is false and Choice.Reason is the reason. It allocates
// nothing when rec is nil.
func ChooseWorker(q *PlacementQuery, v *WorkerView, now time.Time, rng *rand.Rand, rec *explain.Explanation) (Choice, bool) {
	v.peeking = false
	out, ok := v.chooseWorker(q, now, rng, rec)
	if ok {
		v.accrueDrainQuota(out.Index)
	}
	return out, ok
}

// PeekWorker returns what ChooseWorker would return, without advancing round-robin turns or drain quotas.
func PeekWorker(q *PlacementQuery, v *WorkerView, now time.Time, rng *rand.Rand, rec *explain.Explanation) (Choice, bool) {
	v.peeking = true
	return v.chooseWorker(q, now, rng, rec)
}

func (v *WorkerView) chooseWorker(q *PlacementQuery, now time.Time, rng *rand.Rand, rec *explain.Explanation) (Choice, bool) {
	v.setRequest(q, now, rng)
	rule := v.Policy.ruleOf()
	if rec.IsRecording() {
		rec.Policy = rule.name
		rec.Query = fmt.Sprintf("prompt=%d output=%d class=%s", q.PromptTokens, q.OutputTokens, q.Class)
	}
	v.refreshInputs()
	v.prefixKnown = v.Index != nil && len(q.Blocks) > 0 && q.PromptBytes > 0 && v.Index.MatchBlocks(q.Blocks)
	v.fillBlockTokens()
	v.pruning = v.Policy == Predictive && !q.OverShare && q.TPOT <= 0 && !rec.IsRecording()
	reason := v.screenPools(rec)
	if q.OverShare && len(v.candidates) > 0 {
		v.filterOverShare(rec)
		reason = ReasonBusy
	}
	if len(v.candidates) > 0 && !v.filterByTPOT(rec) {
		reason = ReasonBusy
	}
	if len(v.candidates) == 0 {
		rec.SetChosen("", reason)
		return Choice{Index: -1, ID: -1, Reason: reason}, false
	}
	v.fillCachedTokens()
	if v.hasAdapters && v.Policy != Predictive {
		v.filterByAdapter()
	}
	at := rule.choose(v)
	w := &v.Workers[at]
	if rec.IsRecording() {
		v.recordCosts(rule, rec)
		rec.SetChosen(w.Name, rule.reason)
	}
	out := Choice{Index: int(at), ID: w.ID, Reason: rule.reason, PredictedTTFT: v.predictTTFT(at), CachedTokens: int64(v.cachedTokens[at]), KnownTokens: int64(v.cachedTokens[at])}
	if v.holdsLongestPrefix(w.ID) {
		out.KnownTokens -= int64(v.suffixTokens)
		out.LongestHolder, out.SoleHolder = true, v.Index.HasSoleHolder()
	}
	return out, true
}

// requestParams is the request that is being placed, in the units of the cost model.
type requestParams struct {
	query         *PlacementQuery
	wallClock     time.Time
	ledgerClock   int64 // the ledger's clock, in nanoseconds
	rng           *rand.Rand
	promptCount   int64
	outputCount   int64   // expected output, in tokens
	longestPrompt int64   // the longest prompt of its sequences, in tokens
	kvNeed        int64   // KV cache it needs, in tokens
	certainPrompt int64   // lower bound of its longest prompt, in tokens
	promptTokens  float64 // prompt in tokens
	outputTokens  float64 // expected output in tokens
	meanContext   float64 // mean context during decode, in thousands of tokens
	backlogLimit  float64 // maximum prefill backlog, in seconds; 0 means no limit
}

func (v *WorkerView) setRequest(q *PlacementQuery, now time.Time, rng *rand.Rand) {
	prompt := max(0, min(q.PromptTokens, perfmodel.MaxRequestTokens))
	out := max(0, min(q.OutputTokens, perfmodel.MaxRequestTokens))
	v.requestParams = requestParams{
		query: q, wallClock: now, ledgerClock: v.Ledger.ClockAt(now), rng: rng, promptCount: prompt, outputCount: out, longestPrompt: min(q.longestPrompt(), perfmodel.MaxRequestTokens), kvNeed: min(q.KVTokens(), 2*perfmodel.MaxRequestTokens),
		certainPrompt: min(q.longestPrompt(), perfmodel.MaxRequestTokens) * 4 / 5, promptTokens: float64(prompt), outputTokens: float64(out), meanContext: (float64(prompt) + float64(out)/2) / kilo, backlogLimit: max(q.MaxWait, 0).Seconds(),
	}
}

// screenWorkers fills v.candidates with the workers that have room. When there is none, it returns the most favourable
// reason found. Workers with invalid learned parameters are candidates only when no other worker is.
func (v *WorkerView) screenWorkers(rec *explain.Explanation) string {
	v.candidates, v.invalidParams, v.drainHeldBack = v.candidates[:0], v.invalidParams[:0], v.drainHeldBack[:0]
	v.bestCost, v.pruneLimit = math.Inf(1), math.Inf(1)
	reason, pooled := ReasonNoWorker, len(v.admissionInputs) == 0
	for i := range v.admissionInputs {
		if v.pruning && v.costLowerBound(i) > v.pruneLimit {
			continue
		}
		drop := eligible
		if v.poolsMatter {
			drop = v.poolIneligibility(i)
		}
		if drop == eligible {
			drop = v.checkRoom(i)
			pooled = true
		}
		if drop == eligible && v.admissionInputs[i].draining && v.drainQuota[i] < 1 {
			v.drainHeldBack, drop = append(v.drainHeldBack, int32(i)), ineligibleDraining
		}
		if drop == eligible {
			if v.admissionInputs[i].invalid {
				v.invalidParams = append(v.invalidParams, int32(i))
			} else {
				v.candidates = append(v.candidates, int32(i))
				if v.pruning {
					v.lowerPruneLimit(int32(i))
				}
			}
			continue
		}
		if rec.IsRecording() {
			rec.AddCandidate(v.Workers[i].Name).MarkIneligible(v.ineligibilityText(i, drop))
		}
		switch drop {
		case ineligibleSlots, ineligibleKV, ineligibleLongShare, ineligibleBacklog, ineligibleTrial:
			reason = ReasonBusy
		case ineligibleTooLong:
			if reason == ReasonNoWorker {
				reason = ReasonTooLong
			}
		}
	}
	if !pooled {
		reason = ReasonNoPool
	}
	if len(v.candidates) == 0 {
		v.candidates, v.invalidParams = v.invalidParams, v.candidates
	}
	if len(v.candidates) == 0 && reason != ReasonBusy { // no other worker will have room
		v.candidates, v.drainHeldBack = v.drainHeldBack, v.candidates
	}
	for _, at := range v.invalidParams {
		if rec.IsRecording() {
			rec.AddCandidate(v.Workers[at].Name).MarkIneligible(ineligibleInvalid.String())
		}
	}
	return reason
}

// headroomDivisor is the inverse of the part of the KV cache that a tenant above its fair share leaves to others. With
// less than a fifth, the longest prompts of other tenants do not fit on small GPUs and wait for answers to end.
const headroomDivisor = 5

// ineligibility is the reason why a worker is not a candidate.
type ineligibility uint8

const (
	eligible           ineligibility = iota // it has room
	ineligibleDown                          // WorkerSnapshot.DownReason has the reason
	ineligibleExcluded                      // it failed this request
	ineligibleTrial
	ineligibleSlots
	ineligibleKV
	ineligibleLongShare
	ineligibleBacklog
	ineligibleTooLong
	ineligibleInvalid
	ineligibleNotInLedger
	ineligibleReserved  // the worker is dedicated to another pool
	ineligibleWrongPool // the worker is not in the request's pool
	ineligibleOverShare // the tenant is above its fair share and the request would slow others down
	ineligibleTPOT      // time per output token would exceed the request's target
	ineligibleDraining
)

// String returns the reason as explanations show it.
func (d ineligibility) String() string {
	return [...]string{
		"", "down", "failed this request", "on trial", "no free sequence", "no free KV cache", "long requests use their share of KV cache",
		"prefill backlog over the target", "longer than the worker's context", "invalid learned parameters", "not in the ledger",
		"dedicated to another pool", "not of the request's pool",
		"tenant over its fair share", "time per output token over the request's target", "draining: this request goes to another worker",
	}[d]
}

func (v *WorkerView) ineligibilityText(at int, d ineligibility) string {
	if d == ineligibleDown {
		return v.Workers[at].DownReason
	}
	return d.String()
}

// checkRoom returns why worker at has no room for the request now, or eligible.
func (v *WorkerView) checkRoom(at int) ineligibility {
	b := &v.admissionInputs[at]
	if b.down {
		return ineligibleDown
	}
	if len(v.query.Exclude) > 0 && slices.Contains(v.query.Exclude, b.id) {
		return ineligibleExcluded
	}
	// An estimated length may be 25 % too long. A prompt that might fit must reach the engine, which counts exactly.
	if v.certainPrompt >= b.maxPrompt {
		return ineligibleTooLong
	}
	a := v.Ledger.TotalsOf(b.id)
	if a == nil {
		return ineligibleNotInLedger
	}
	back := a.BacklogAt(v.ledgerClock, b.prefillRate)
	seqs := a.Sequences()
	if late := a.LateSeconds(v.ledgerClock, b.prefillRate, b.prefillBase); late > 0 {
		back += late * b.prefillRate
	}
	load := &v.loads[at]
	load.backlogTokens, load.seqs, load.heldKilotokens, load.kvTight = back, float64(seqs), float64(a.HeldKV())/kilo, false
	if b.maxTrials > 0 && a.Running() >= b.maxTrials {
		return ineligibleTrial
	}
	if seqs == 0 {
		return eligible
	}
	if seqs >= int64(b.slots) {
		return ineligibleSlots
	}
	if b.kvTotal > 0 {
		held := a.HeldKV()
		most := b.kvLimit(a.ForeignKV())
		if v.query.HasTTFT || v.query.ReserveHeadroom {
			most = min(most, b.kvTotal)
		}
		if v.query.ReserveHeadroom {
			most -= most / headroomDivisor
		}
		if held+v.kvNeed > most && held+v.kvNeed-v.sharedKVOn(at, true) > most {
			return ineligibleKV
		}
		load.kvTight = held+v.promptCount+v.outputCount > b.kvTotal-b.kvTotal/10 && held+v.promptCount+v.outputCount-v.sharedKVOn(at, true) > b.kvTotal-b.kvTotal/10
		if inflight.IsLong(v.kvNeed, b.kvTotal) {
			if l := v.Ledger.LongKV(b.id); l > 0 && l+v.kvNeed-v.cachedKVOn(at, b.id) > v.longKVLimit(b.kvTotal) {
				return ineligibleLongShare
			}
		}
	}
	if v.backlogLimit > 0 && back-v.cachedWorkOn(at, b.id) > v.maxBacklogSeconds(b)*b.trustedRate {
		return ineligibleBacklog
	}
	return eligible
}

// cachedWorkOn returns the part of the prompt that the worker holds, as prefill work, scaled by its measured hit rate.
// Waiting that long for the holder is worthwhile: on another worker the same time is spent on recomputing the prefix,
// and more cache on a second copy.
func (v *WorkerView) cachedWorkOn(at int, id int32) float64 {
	if !v.prefixKnown {
		return 0
	}
	b := &v.boundInputs[at]
	had := float64(v.cachedTokensOn(id)) * b.hitRate
	return perfmodel.AttentionWork(v.promptTokens, 0, b.attentionSlope) - perfmodel.AttentionWork(v.promptTokens-had, had, b.attentionSlope)
}

// maxBacklogSeconds returns how long a worker's backlog may be, in seconds. While other requests wait it is just long
// enough to keep the engine busy, because no request can overtake what is inside an engine. A worker that holds most of
// the prompt may have a longer backlog.
func (v *WorkerView) maxBacklogSeconds(b *admissionInputs) float64 {
	if !v.query.Contended || v.prefixKnown && 2*blockhash.BytesCovered(v.Index.MatchedBlocks(b.id)) >= v.query.PromptBytes {
		return v.backlogLimit
	}
	return min(v.backlogLimit, contendedBacklog)
}

// fillBlockTokens fills v.blockTokens if any worker holds the beginning of the prompt.
func (v *WorkerView) fillBlockTokens() {
	if !v.prefixKnown {
		return
	}
	q := v.query
	perByte := v.promptTokens / float64(q.PromptBytes)
	for n := range min(len(q.Blocks), blockhash.MaxBlocks) + 1 {
		v.blockTokens[n] = tokensInBlocks(n, perByte, v.promptCount)
	}
	v.creditSuffix()
}

// fillCachedTokens fills v.cachedTokens for the candidates.
func (v *WorkerView) fillCachedTokens() {
	for _, at := range v.candidates {
		v.cachedTokens[at] = v.cachedTokensOn(v.admissionInputs[at].id)
	}
}

// cachedTokensOn returns how many tokens of the prompt a worker has cached.
func (v *WorkerView) cachedTokensOn(id int32) int32 {
	if !v.prefixKnown {
		return 0
	}
	return v.blockTokens[min(v.Index.MatchedBlocks(id), blockhash.MaxBlocks)]
}

// tokensInBlocks converts matched blocks to prompt tokens. A hit never covers the last token, which the engine must
// compute.
func tokensInBlocks(blocks int, perByte float64, prompt int64) int32 {
	if blocks == 0 {
		return 0
	}
	return int32(max(0, min(int64(float64(blockhash.BytesCovered(blocks))*perByte), prompt-1, 1<<30)))
}

// creditSuffix adds, for the workers that hold the longest known prefix of the prompt, the tokens of the rest they are
// expected to have cached.
func (v *WorkerView) creditSuffix() {
	n := min(v.Index.LongestMatchedBlocks(), blockhash.MaxBlocks)
	v.suffixTokens = int32(v.SuffixHits.HitRate(v.Index.HasSoleHolder()) * float64(max(v.promptCount-1-int64(v.blockTokens[n]), 0)))
	v.blockTokens[n] += v.suffixTokens
}

// holdsLongestPrefix reports whether a worker holds the longest known prefix of the prompt.
func (v *WorkerView) holdsLongestPrefix(id int32) bool {
	return v.prefixKnown && min(v.Index.MatchedBlocks(id), blockhash.MaxBlocks) == min(v.Index.LongestMatchedBlocks(), blockhash.MaxBlocks)
}
