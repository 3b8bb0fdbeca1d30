package routing

import (
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/decision"
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/resume"
)

// Router is the routing state of one gateway: the summaries of its region's local instances, the in-flight ledger,
// suspected endpoints, session affinity, and the budgets for retries and spills. It is single-threaded: callers that
// share one hold a lock, once for each phase of an attempt (Dispatch, RecordFirstByte, Finish).
type Router struct {
	cfg    RouterConfig
	policy Policy
	view   *RoutingView // of the last Rebuild; never nil

	summaries    *capacity.SummaryTable
	ledger       *Ledger
	sessions     *SessionTable
	retention    *CacheRetention
	spillBudgets *SpillBudgets
	retryBudget  RetryBudget
	decisions    *decision.Ring // nil: decisions are not kept
	inputs       *inputRecorder // nil: what they are made from is not kept
	massLoss     resume.MassLossBudget
	// ticketMarks holds, for each peer region, ledger tickets by their time of issue.
	ticketMarks map[string][]ticketMark
	suspects    map[string]time.Time      // endpoints that refused a connection, and until when they count as unreachable
	endpoints   map[string]*endpointState // endpoints with attempts in flight
	reachable   map[string]bool           // endpoints of local instances with recent summaries, as of the last Rebuild
	stopping    bool                      // CancelAll was called
}

// RouterConfig configures a Router.
type RouterConfig struct {
	// Name and Boot identify this run of the gateway in the acknowledgements of local instances.
	Name string
	Boot uint64
	// Rand makes all random choices; the same calls with the same seed lead to the same decisions.
	Rand *rand.Rand
	// PCG is the source of Rand. With it the router records what decisions are made from, so that they can be replayed; nil: it
	// does not.
	PCG *rand.PCG
	// DecisionBytes bounds the log of decisions, in bytes; 0: none is kept.
	DecisionBytes int
}

// NewRouter returns a router without summaries and peers.
func NewRouter(c RouterConfig) *Router {
	r := &Router{
		cfg: c, view: &RoutingView{},
		summaries: capacity.NewSummaryTable(capacity.FreshnessThresholds{}), ledger: NewLedger(),
		sessions: NewSessionTable(), retention: NewCacheRetention(), spillBudgets: NewSpillBudgets(),
		decisions:   decision.NewRing(c.DecisionBytes),
		ticketMarks: map[string][]ticketMark{}, suspects: map[string]time.Time{}, endpoints: map[string]*endpointState{},
	}
	if r.decisions != nil && c.PCG != nil {
		r.inputs = &inputRecorder{pcg: c.PCG, states: decision.NewRing(c.DecisionBytes)}
	}
	return r
}

// DispatchOutcome is the outcome of Dispatch.
type DispatchOutcome uint8

// The outcomes of Dispatch. Only Dispatched begins an attempt.
const (
	Dispatched   DispatchOutcome = iota
	NoEndpoint                   // no endpoint is eligible
	MissesTarget                 // the best endpoint misses RouteQuery.TTFTTarget
	PastDeadline                 // the best endpoint misses RouteQuery.Deadline
)

// Dispatch chooses an endpoint for a request and begins an attempt there. It enters the attempt in the ledger in the
// same step, so that the next choice counts it. a.Decision is set for every outcome. The caller ends each attempt with
// Finish.
func (r *Router) Dispatch(q *RouteQuery, a *Attempt, now time.Time) DispatchOutcome {
	r.retryBudget.AddRequest(q.RetryCredit)
	q.RetryCredit = 0
	r.findAffinity(q)
	var ok bool
	if a.Decision, ok = r.chooseAndLog(q, now); !ok {
		return NoEndpoint
	}
	d := &a.Decision
	switch {
	case q.TTFTTarget > 0 && !d.MeetsTarget(q.TTFTTarget):
		return MissesTarget
	case !q.Deadline.IsZero() && d.Reason != ReasonCold && d.TTFTSeconds > q.Deadline.Sub(now).Seconds():
		return PastDeadline
	}
	if d.IsSpilled() {
		r.spillBudgets.TakeTokens(d.Path.Region, q.Model, q.PromptTokens, d.SpillRate, now)
	}
	// Tokens that are cached there delay no other request, so they are left out: requests with a common prefix often
	// arrive at the same time.
	a.Ticket = r.ledger.IssueTicket(d.Path, q.Model, int64(q.PromptTokens)-d.CachedTokens, int64(q.PromptTokens+q.MaxTokens))
	r.recordAffinity(q, d)
	r.trackAttempt(q, a, now)
	return Dispatched
}

// Preview returns the decision that Dispatch would make now, without beginning an attempt. rec, if not nil, records
// the reasons.
func (r *Router) Preview(q *RouteQuery, now time.Time, rec *explain.Explanation) (RouteDecision, bool) {
	q.Ledger, q.SpillBudgets, q.SpillShare = r.ledger, r.spillBudgets, r.policy.SpillShare
	return ChooseRoute(q, r.view, now, r.cfg.Rand, rec)
}

// RecordFirstByte records the first byte of an attempt's response, which shows that prefill is done.
func (r *Router) RecordFirstByte(a *Attempt) {
	if a.isOpen() {
		r.ledger.RecordPrefilled(a.Decision.Path, a.Ticket)
	}
}

// Finish ends an attempt. u is the usage that its response reports; complete is set when the response was received to
// its end. It returns false, and does nothing, for an attempt that has already ended.
func (r *Router) Finish(a *Attempt, u openai.TokenUsage, complete bool) bool {
	if !a.isOpen() {
		return false
	}
	q := a.query
	r.ledger.FinishTicket(a.Decision.Path, a.Ticket)
	r.untrackAttempt(a)
	if complete && u.Stated && a.Decision.Path == q.AffinityPath {
		r.retention.RecordAnswer(q.AffinityPath, q.affinityTokens, u.Cached)
	}
	return true
}

// TakeRetry takes one retry from the retry budget; false when the budget is spent.
func (r *Router) TakeRetry(now time.Time) bool { return r.retryBudget.TakeRetry(now) }

// TakeResume takes one resumption of an interrupted stream from the retry budget or, when that is spent, from the
// budget for mass losses. open is the number of open streams.
func (r *Router) TakeResume(now time.Time, open int) bool {
	return r.retryBudget.TakeRetry(now) || r.massLoss.TakeResume(now, open)
}

// findAffinity looks up once per request where its session was served last. Endpoints that refused an attempt of
// this request are not recorded there.
func (r *Router) findAffinity(q *RouteQuery) {
	if q.affinityKnown {
		return
	}
	q.affinityKnown = true
	if q.Session != 0 {
		q.AffinityPath, q.affinityTokens = r.sessions.FindLatest(q.Session)
	} else {
		q.AffinityPath, q.affinityTokens = r.sessions.FindLatest(q.Prefix...)
	}
	q.affinityTokens = min(q.affinityTokens, q.PromptTokens)
	q.AffinityTokens = int(float64(q.affinityTokens) * r.retention.FractionFor(q.AffinityPath))
}

// recordAffinity records the endpoint that now serves the session.
func (r *Router) recordAffinity(q *RouteQuery, d *RouteDecision) {
	key := q.Session
	if n := len(q.Prefix); key == 0 && n > 0 {
		key = q.Prefix[n-1]
	}
	r.sessions.RecordServed(key, d.Path, q.PromptTokens)
}

// RetryBudget bounds retries to a share of the requests, so that an outage does not multiply the load. It has one
// writer at a time. The zero value starts full.
type RetryBudget struct {
	spent     float64
	updatedAt time.Time
}

// AddRequest counts one request, which earns share of a retry.
func (b *RetryBudget) AddRequest(share float64) { b.spent = max(b.spent-share, 0) }

// TakeRetry takes one retry; false when the budget is spent.
func (b *RetryBudget) TakeRetry(now time.Time) bool {
	if now.After(b.updatedAt) {
		if !b.updatedAt.IsZero() {
			b.spent = max(b.spent-retryFloorPerSec*now.Sub(b.updatedAt).Seconds(), 0)
		}
		b.updatedAt = now
	}
	if b.spent+1 > maxSavedRetries {
		return false
	}
	b.spent++
	return true
}
