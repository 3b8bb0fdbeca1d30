package regional

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/decision"
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/regional/routing"
)

// sharedRouter is a router with its lock, which each phase of an attempt takes once. It calls nothing outside the
// router while it holds the lock.
type sharedRouter struct {
	view          atomic.Pointer[routing.RoutingView] // of the last rebuild; never nil
	rebuildWanted chan struct{}                       // requests a new view
	onLiveChange  func()                              // is called when the live instances have changed; nil: nothing

	decisions *decision.Ring // its log of decisions, under mu; nil: none is kept

	mu     sync.Mutex // held for microseconds, never while waiting
	router *routing.Router
}

func newSharedRouter(c routing.RouterConfig) *sharedRouter {
	s := &sharedRouter{router: routing.NewRouter(c), rebuildWanted: make(chan struct{}, 1)}
	s.decisions = s.router.Decisions()
	s.view.Store(s.router.View())
	return s
}

// dispatchRequest chooses an endpoint for a request and begins an attempt there.
func (s *sharedRouter) dispatchRequest(q *routing.RouteQuery, a *routing.Attempt, now time.Time) routing.DispatchOutcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.router.Dispatch(q, a, now)
}

// previewRoute returns the decision that dispatch would make now. rec, if not nil, records the reasons.
func (s *sharedRouter) previewRoute(q *routing.RouteQuery, now time.Time, rec *explain.Explanation) (routing.RouteDecision, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.router.Preview(q, now, rec)
}

// whyRefuseSpilled returns why a request of another region is refused, or "".
func (s *sharedRouter) whyRefuseSpilled(q *routing.RouteQuery, within, target time.Duration, now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.router.WhyRefuseSpilled(q, within, target, now)
}

// recordFirstByte records the first byte of an attempt's response.
func (s *sharedRouter) recordFirstByte(a *routing.Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.router.RecordFirstByte(a)
}

// finishAttempt ends an attempt; false if it has already ended.
func (s *sharedRouter) finishAttempt(a *routing.Attempt, u openai.TokenUsage, complete bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.router.Finish(a, u, complete)
}

// recordSpillOutcome records whether a peer refused or took a spilled request. It returns true when the request is to
// be routed again.
func (s *sharedRouter) recordSpillOutcome(q *routing.RouteQuery, d *routing.RouteDecision, refused bool, now time.Time) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if refused {
		return s.router.RecordSpillRefusal(q, d, now)
	}
	s.router.RecordSpillAcceptance(q, d)
	return false
}

// takeRetry takes one retry from the retry budget.
func (s *sharedRouter) takeRetry(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.router.TakeRetry(now)
}

// takeResume takes one resumption of an interrupted stream from the budgets. open is the number of open streams.
func (s *sharedRouter) takeResume(now time.Time, open int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.router.TakeResume(now, open)
}

// receiveSummary records a local instance's summary; false if it is not newer than the last one.
func (s *sharedRouter) receiveSummary(sum *capacity.Summary, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.router.ReceiveSummary(sum, now)
}

// markUnreachable marks a local instance whose session has ended.
func (s *sharedRouter) markUnreachable(p capacity.Path) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.router.MarkUnreachable(p)
}

// forgetLocal deletes the state of a local instance that restarts with a lower boot number.
func (s *sharedRouter) forgetLocal(p capacity.Path) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.router.ForgetLocal(p)
}

// applyPolicy replaces the policy.
func (s *sharedRouter) applyPolicy(p routing.Policy, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.router.ApplyPolicy(p, now)
}

// mergeUsable merges the summaries of usable instances.
func (s *sharedRouter) mergeUsable(now time.Time) capacity.Summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.router.MergeUsable(now)
}

// suspectEndpoint counts an endpoint as unreachable for a while after a failed connection.
func (s *sharedRouter) suspectEndpoint(endpoint string, now time.Time) {
	s.mu.Lock()
	s.router.SuspectEndpoint(endpoint, now)
	s.mu.Unlock()
	s.rebuildView(now)
}

// requestRebuild requests a new view. Calls that come faster than views are built are merged.
func (s *sharedRouter) requestRebuild() {
	select {
	case s.rebuildWanted <- struct{}{}:
	default:
	}
}

// rebuildView rebuilds the view that requests use, and cancels attempts at unreachable endpoints.
func (s *sharedRouter) rebuildView(now time.Time) {
	s.mu.Lock()
	old := s.router.View()
	v := s.router.Rebuild(now)
	s.view.Store(v)
	unreachable := s.router.SweepUnreachable(now)
	s.mu.Unlock()
	cancelAttempts(unreachable, errUnreachable)
	if s.onLiveChange != nil && (old.Live == nil || !maps.EqualFunc(old.Live, v.Live, slices.Equal[[]routing.PeerGateway])) {
		s.onLiveChange()
	}
}

// cancelAll cancels all attempts in flight. Attempts dispatched later begin cancelled.
func (s *sharedRouter) cancelAll(cause error) {
	s.mu.Lock()
	all := s.router.CancelAll()
	s.mu.Unlock()
	cancelAttempts(all, cause)
}
