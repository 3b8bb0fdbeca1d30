package local

import (
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/sched"
)

// RetryBurst bounds the retry budget.
const RetryBurst = sched.RetryBurst

// SetResumeWait sets how long a zone behind a gateway waits with an interrupted stream. Call it before any request.
func (a *Agent) SetResumeWait(d time.Duration) { a.attempts.resumeWait = d }

// PendingBatched counts the requests of a model that its batch dispatcher holds.
func (a *Agent) PendingBatched(model string) int {
	return int(testutil.ToFloat64(a.handler.dispatchers.pending.WithLabelValues(model)))
}

// EmptyRetryBudget removes every available retry.
func (a *Agent) EmptyRetryBudget() {
	a.scheduler.update(func(s *sched.Scheduler) { s.Retries.Budget = -1000 })
}

// SpecVersion is the version of the spec in force.
func (a *Agent) SpecVersion() uint64 { return a.policy.Load().specVersion }

// HasCachedPrefix reports whether a tenant's request would find a cached prefix on some worker.
func (a *Agent) HasCachedPrefix(tenant, model, body string) (has bool) {
	v := newZoneRequest(&http.Request{URL: newPathURL(openai.PathChat), Header: http.Header{}}, openai.ShapeChat)
	v.Tenant, v.Model, v.EstimatedTokens = tenant, model, 1000
	if openai.ScanChat([]byte(body), &v.Envelope) != nil {
		return false
	}
	a.scheduler.update(func(s *sched.Scheduler) {
		cached, ok := s.Admission.PredictCachedTokens(&v.Request, time.Now())
		has = ok && cached > 0
	})
	return has
}

// PredictedCachedTokens is how much of a prompt its only worker is predicted to have cached, in tokens of four bytes.
func (a *Agent) PredictedCachedTokens(body string) (cached int64) {
	v := newZoneRequest(&http.Request{URL: newPathURL(openai.PathChat), Header: http.Header{}}, openai.ShapeChat)
	v.Tenant = "default"
	if err := openai.ScanChat([]byte(body), &v.Envelope); err != nil {
		panic(err)
	}
	v.Model, v.EstimatedTokens, v.EstimateIsExact = v.Envelope.Model, int64(len(v.Envelope.Prompt)/4), true
	a.scheduler.update(func(s *sched.Scheduler) { cached, _ = s.Admission.PredictCachedTokens(&v.Request, time.Now()) })
	return cached
}

// PrefixHitScore returns the sums of all prompt tokens, and of those over- and underestimated as cached.
func (a *Agent) PrefixHitScore(exact bool) (prompt, over, under float64) {
	var h sched.HitScore
	a.scheduler.update(func(s *sched.Scheduler) {
		if h = s.Cache.HitScores[0]; exact {
			h = s.Cache.HitScores[1]
		}
	})
	return h.Prompt, h.Over, h.Under
}

// LinkedBlocks counts our own blocks that a worker's events have shown to be in its cache.
func (a *Agent) LinkedBlocks(worker string) int { return a.cacheReport(worker).Linked }

func (a *Agent) cacheReport(worker string) (found sched.CacheReport) {
	a.scheduler.update(func(s *sched.Scheduler) {
		for _, w := range s.Reports.ListCacheEvents() {
			if w.Worker == worker {
				found = w
			}
		}
	})
	return found
}

// PromptMatchOutcomes counts the outcomes of matching prompts with a worker's events.
func (a *Agent) PromptMatchOutcomes(worker string) map[string]uint64 {
	return a.cacheReport(worker).Matches
}

// PeerHeartbeat is a zone peer's answer, and DecodeHeartbeat decodes one.
type PeerHeartbeat = peerHeartbeat

func DecodeHeartbeat(r io.Reader) (*PeerHeartbeat, error) { return decodeHeartbeat(r) }

// DescribeQueues describes the queues as shown to operators.
func (a *Agent) DescribeQueues() []admin.QueueModel {
	return a.scheduler.describeQueues(maxShownTenants)
}

// SetWorkers replaces the declared workers.
func (a *Agent) SetWorkers(list []discover.Worker) { a.setWorkers(list) }

// QueueLength is the number of requests that wait for a model.
func (a *Agent) QueueLength(model string) (n int) {
	a.scheduler.update(func(s *sched.Scheduler) { n = s.Reports.QueueLengths()[model] })
	return n
}

// HeldBodyBytes is the memory that request bodies hold.
func (a *Agent) HeldBodyBytes() int64 { return a.handler.bodyMemory.HeldBytes() }
