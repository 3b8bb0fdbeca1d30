package routing

import (
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/decision"
	"github.com/spillway-lb/spillway/internal/spec"
)

// RouteQuery is the part of a request that routing depends on.
type RouteQuery struct {
	// RequestID and Tenant are for the log of decisions.
	RequestID, Tenant string

	Model string
	// PromptTokens is the estimated prompt and MaxTokens the expected output, in tokens.
	PromptTokens, MaxTokens int
	// Choices is the number of parallel responses that share MaxTokens; 0 counts as 1.
	Choices int
	Class   spec.Class
	// Residency lists the jurisdictions that may serve the tenant; empty means anywhere.
	Residency []string
	// Regions lists the regions that may serve the tenant; empty means any.
	Regions []string
	// Hops counts the regions that forwarded the request. The limit is one.
	Hops int
	// Spill is set when the policy lets the request leave the region.
	Spill bool
	// ExpectContinue is set when a peer must admit the request before its body is sent, which takes another round trip.
	ExpectContinue bool
	// Margin is how much sooner a peer must be, round trip included, before a request leaves that its own region could
	// serve.
	Margin time.Duration
	// Pool is the worker pool of the request, and Overflow lets workers outside it serve the request too. Empty: any
	// worker.
	Pool     string
	Overflow bool
	// ExcludedPeer is a peer region that has refused this request, or ExcludeAllPeers; empty for none.
	ExcludedPeer string
	// FailedEndpoints lists endpoints that have already failed this request, the newest first.
	FailedEndpoints [2]string
	// Prefix holds the hashes of the prompt's prefixes as sketches contain them, the shortest first. Empty: unknown.
	Prefix []uint64
	// Session is a hash of the request's session; 0: none. All gateways of a region send a new session to the same one
	// of near-equal zones.
	Session uint64
	// TTFTTarget is the latest predicted first token that Dispatch accepts, in seconds; 0: any.
	TTFTTarget float64
	// Deadline is when the client gives up: Dispatch accepts no later first token, unless a model must be loaded first.
	// Zero: none.
	Deadline time.Time
	// RetryCredit is the part of a retry that the request earns. The first Dispatch sets it to 0.
	RetryCredit float64

	// AffinityPath is the child that served the request's session last, and AffinityTokens how much of its prompt may
	// still be cached there. Dispatch sets both.
	AffinityPath   capacity.Path
	AffinityTokens int
	// SpillBudgets is what this gateway may still send to its peers; nil: anything within their headroom. SpillShare is
	// the part of a peer's headroom that this gateway may use. Ledger is its in-flight ledger; nil is empty. A Router
	// sets all three.
	SpillBudgets *SpillBudgets
	SpillShare   float64
	Ledger       *Ledger

	replayed       *replayedInputs // of a replay, instead of Ledger and SpillBudgets
	affinityKnown  bool            // AffinityPath and AffinityTokens are set
	affinityTokens int             // tokens of the prompt that were cached there when the session was served last
	// drainDraw decides, between 0 and 1, which draining zones the query may still use; 0: not drawn yet.
	drainDraw float64
}

// isDrainedAway reports whether a drain in progress keeps the query away from the zone. The draw is made once for each
// query. It is the same for all requests of a session, so that a session leaves once and does not return.
func (q *RouteQuery) isDrainedAway(l *LocalInstance, rng *rand.Rand) bool {
	if l.DrainedShare <= 0 {
		return false
	}
	if q.drainDraw == 0 && q.Session != 0 {
		q.drainDraw = unitInterval(q.Session * 0x9e3779b97f4a7c15)
	} else if q.drainDraw == 0 {
		q.drainDraw = unitInterval(rng.Uint64())
	}
	return q.drainDraw < l.DrainedShare
}

// unitInterval maps 64 bits to a number between 0 and 1, both excluded.
func unitInterval(h uint64) float64 {
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	h ^= h >> 32
	return (float64(h>>11) + 0.5) / (1 << 53)
}

// ExcludeEndpoint excludes an endpoint that failed the request.
func (q *RouteQuery) ExcludeEndpoint(endpoint string) {
	q.FailedEndpoints[1], q.FailedEndpoints[0] = q.FailedEndpoints[0], endpoint
}

func (q *RouteQuery) isExcluded(endpoint string) bool {
	return endpoint == "" || endpoint == q.FailedEndpoints[0] || endpoint == q.FailedEndpoints[1]
}

// permitsPeer reports whether a peer region may serve the query's tenant.
func (q *RouteQuery) permitsPeer(p *PeerRegion) bool {
	return spec.ResidencyPermits(q.Regions, q.Residency, p.Region, p.Residency)
}

// modelEntry returns the capacity of the workers that may serve the query: those of its pool, if the child reports it.
// For a pool with overflow it is that of all workers when those are sooner.
func (q *RouteQuery) modelEntry(s *capacity.Summary) *capacity.ModelCapacity {
	m := s.FindModel(q.Model)
	if m == nil || q.Pool == "" {
		return m
	}
	p := m.FindPool(q.Pool)
	switch {
	case p == nil:
		return m // an earlier release does not report pools, and the number of reported pools is bounded
	case !q.Overflow || m.Ready == 0:
		return p
	case p.Ready == 0 || q.queueSeconds(p) > q.queueSeconds(m):
		return m
	}
	return p
}

// queueSeconds returns the wait in the queue, in seconds.
func (q *RouteQuery) queueSeconds(m *capacity.ModelCapacity) float64 {
	return float64(m.WorkAhead[q.Class]) / max(float64(m.PrefillRate()), 1)
}

// findEligible returns the child's entry for the query's model, or why the child cannot serve it.
func (q *RouteQuery) findEligible(s *capacity.Summary) (*capacity.ModelCapacity, string) {
	m := q.modelEntry(s)
	switch {
	case m == nil:
		return nil, IneligibleModel
	case m.Ready <= 0:
		return nil, IneligibleNotReady
	case m.MaxContext > 0 && int64(MinPromptTokens(q.PromptTokens)) >= m.MaxContext:
		return nil, IneligibleContext
	}
	return m, ""
}

// estimateCost predicts the cost of the query at one child and records its terms:
//
//	ttft = (work ahead + load) / rate + prompt / own + room - cached / own
//
// where rate is the prefill rate of all ready workers and own that of one, in tokens/s, load the tokens sent and not yet
// in the summary, and room the wait for KV cache and sequence slots. credit is set when the summary is fresh enough for
// its cache contents to count.
func (q *RouteQuery) estimateCost(m *capacity.ModelCapacity, path capacity.Path, credit bool, h costHandle) routeCost {
	load := q.sentLoad(path)
	rate := float64(m.PrefillRate())
	if rate <= 0 {
		rate = defaultPrefillRate * float64(m.Ready)
	}
	wait := float64(m.WorkAhead[q.Class]+load.Tokens) / rate
	h.addTerm(decision.TermWait, wait)
	own := rate / float64(m.Ready)
	prefill := float64(q.PromptTokens) / own
	h.addTerm(decision.TermPrefill, prefill)
	room := q.roomWait(m, load)
	h.addTerm(decision.TermKVWait, room)
	var saved float64
	if credit {
		if saved = float64(q.cachedTokens(m, path)) / own; saved > 0 {
			h.addTerm(decision.TermCredit, -saved)
		}
	}
	interference := q.interferenceSeconds(m, load, prefill-saved)
	h.addTerm(decision.TermDecode, interference)
	return routeCost{wait + prefill + room - saved, interference}
}

// decodeRate returns the decode rate of all workers together, in tokens/s.
func decodeRate(m *capacity.ModelCapacity) float64 {
	if rate := m.DecodeRate(); rate > 0 {
		return float64(rate)
	}
	return defaultDecodeRate * float64(m.Ready)
}

// roomWait returns the predicted wait until KV cache and a sequence slot are free, in seconds.
func (q *RouteQuery) roomWait(m *capacity.ModelCapacity, load SentLoad) float64 {
	decode := decodeRate(m)
	var wait float64
	if m.KVTotal > 0 {
		if short := int64(q.PromptTokens+q.MaxTokens) - (m.KVFree - load.KV); short > 0 {
			wait = float64(short) / decode
		}
	}
	if m.SlotsTotal > 0 {
		if short := load.Requests + 1 - m.SlotsFree; short > 0 {
			wait = max(wait, float64(short)*assumedRemainingOutput/decode)
		}
	}
	return min(wait, maxRoomWait)
}

// creditedTokens returns how many of the prompt's tokens are cached at a child with a fresh summary.
func (q *RouteQuery) creditedTokens(s *capacity.Summary, path capacity.Path, state capacity.Freshness) int64 {
	if m := q.modelEntry(s); m != nil && m.Ready > 0 && state == capacity.Fresh {
		return q.cachedTokens(m, path)
	}
	return 0
}

// cachedTokens returns how many of the prompt's tokens are expected in the child's cache: by its sketch, or because the
// session was served there last.
func (q *RouteQuery) cachedTokens(m *capacity.ModelCapacity, path capacity.Path) int64 {
	held := longestCachedPrefix(q.Prefix, m.Prefixes)
	if q.AffinityTokens > 0 && path == q.AffinityPath {
		held = max(held, int64(q.AffinityTokens))
	}
	return min(held, int64(q.PromptTokens))
}

// longestCachedPrefix returns the length of the longest of the query's prefixes that the sketch holds, in tokens.
func longestCachedPrefix(prefix []uint64, sketch []capacity.PrefixEntry) int64 {
	for i := len(prefix) - 1; i >= 0; i-- {
		for j := range sketch {
			if sketch[j].Hash == prefix[i] {
				return sketch[j].Tokens
			}
		}
	}
	return 0
}

// MinPromptTokens returns the least length of a prompt estimated at tokens tokens. An estimate from bytes may be a quarter
// too long, and a request that might fit must reach the engine, which counts exactly.
func MinPromptTokens(tokens int) int { return tokens * 4 / 5 }

// coldStartSeconds returns the time until a zone without a ready worker can have loaded the model; false when it cannot.
// It applies only in the request's own region: requests spill to ready workers only.
func (q *RouteQuery) coldStartSeconds(l *LocalInstance) (float64, bool) {
	m := q.modelEntry(l.Summary)
	switch {
	case q.Hops > 0 || m == nil || m.Ready > 0 || m.Warm+m.Cold <= 0:
		return 0, false
	case l.State == capacity.Unreachable || l.Drained || l.Summary.Draining:
		return 0, false
	}
	return m.LoadSeconds(defaultWarmLoadSeconds, defaultColdLoadSeconds)
}

// routeCost is the predicted cost of a query at a child, in seconds.
type routeCost struct {
	ttft         float64 // predicted time to the first token
	interference float64 // cost of the slowdown between it and the responses in progress there
}

func (p routeCost) totalSeconds() float64 { return p.ttft + p.interference }

// interferenceSeconds returns the cost of the slowdown between a query and the responses in progress on one worker of the
// child, in seconds of TTFT:
//
//	interferenceWeight * (seqs*prompt + steps*per*(seqs*context + held))
//
// The seqs responses pause for the prompt seconds of its prefill. For each of its steps decode steps, the query's context
// slows the responses, and their held context tokens slow the query, by per seconds per token. Without this term a zone
// with an empty queue would look idle however many responses it is decoding.
func (q *RouteQuery) interferenceSeconds(m *capacity.ModelCapacity, load SentLoad, prompt float64) float64 {
	n, choices := float64(m.Ready), float64(max(q.Choices, 1))
	seqs := float64(runningAnswers(m)+load.Requests) / n
	held := float64(max(m.KVTotal-m.KVFree, 0)+load.KV) / n
	per := decodeLoadShare * n / decodeRate(m) / 1000 // seconds that one token of context adds to a decode step of a worker
	steps := float64(q.MaxTokens) / choices
	context := choices * (float64(q.PromptTokens) + steps/2) // the query's own context, on average
	return min(interferenceWeight*(seqs*prompt+steps*per*(seqs*context+held)), maxRoomWait)
}

// runningAnswers returns the number of responses in progress on workers that accept requests. Running also counts those on
// draining workers, which do not slow new requests down: a region that restarts its workers one by one would look loaded.
func runningAnswers(m *capacity.ModelCapacity) int64 {
	if m.SlotsTotal > 0 {
		return max(m.SlotsTotal-m.SlotsFree, 0)
	}
	return m.Running
}
