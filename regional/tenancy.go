package regional

import (
	"net/http"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional/demand"
	"github.com/spillway-lb/spillway/regional/directive"
	"github.com/spillway-lb/spillway/regional/tenant"
)

// tenantGate enforces the tenants' limits and measures demand. A request takes its lock once when it arrives, once when
// it is admitted and once when it is settled.
type tenantGate struct {
	mu       sync.Mutex // held for microseconds, never while waiting
	enforcer *tenant.Enforcer
	demand   *demand.Tracker
}

// newTenantGate returns a gate without a spec. standalone is set without a global tier.
func newTenantGate(holder spec.LeaseHolder, standalone bool, boot uint64, now time.Time) *tenantGate {
	return &tenantGate{enforcer: tenant.NewEnforcer(holder, boot, standalone, now), demand: demand.NewTracker()}
}

// setSpec replaces the spec. Nil: there is none yet.
func (t *tenantGate) setSpec(s *spec.Spec) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.enforcer.SetSpec(s)
}

// retainTenants removes idle tenants for which keep is false.
func (t *tenantGate) retainTenants(keep func(name string) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.enforcer.RetainTenants(keep)
}

// applyGrant applies the leader's grant of quotas. Only the leader sends grants.
func (t *tenantGate) applyGrant(x *uplink.QuotaGrant, now time.Time) {
	if x == nil {
		return
	}
	grant := directive.LeaseGrant(x)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.enforcer.ApplyGrant(grant, x.Boot, x.Mark, now)
}

// resetTerm accepts grants of any term again.
func (t *tenantGate) resetTerm() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.enforcer.ResetTerm()
}

// hasLeases reports whether leases of the global tier are in force.
func (t *tenantGate) hasLeases(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.enforcer.HasLeases(now)
}

// listUses lists the use of all tenants.
func (t *tenantGate) listUses(now time.Time) []capacity.TenantUsage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.enforcer.ListAllUses(now)
}

// enterRequest reserves one of the tenant's concurrent requests before the body is read, so that a client that sends
// slowly counts against its own tenant.
func (t *tenantGate) enterRequest(q *gatewayRequest, head http.Header) *openai.Error {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	denial, ok := t.enforcer.EnterRequest(q.tenant, now)
	if !ok {
		writeLimitHeaders(head, q.tenant.Limits, t.enforcer.RemainingFor(q.tenant, now))
		return denialError(denial)
	}
	q.holdsConcurrency = true
	return nil
}

// chargeRequest charges the request to the tenant's limits and counts it as demand of a cell. A request refused for lack
// of capacity still counts as demand; one above its tenant's own limit does not. outputCost is the cost of one output
// token in prefill tokens.
func (t *tenantGate) chargeRequest(q *gatewayRequest, head http.Header, cell string, outputCost float64, now time.Time) (tenant.Denial, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !q.noGeneratedText {
		q.query.MaxTokens = t.demand.ExpectedOutput(q.model.Name, demand.OutputLimit(q.model, q.env.MaxTokens)) * q.env.N
		q.query.Choices = q.env.N
	}
	lease, denial, ok := t.enforcer.AdmitRequest(q.tenant, q.holdsConcurrency, q.estimateCost(), now)
	writeLimitHeaders(head, q.tenant.Limits, t.enforcer.RemainingFor(q.tenant, now))
	if !ok {
		return denial, false
	}
	if lease.Throttled {
		q.query.Class, q.hop.Class = spec.Batch, spec.Batch
	}
	q.lease, q.hasLease, q.admitted = lease, true, now
	q.query.RetryCredit = q.policy.spec.Routing.RetryBudget
	work := float64(q.query.PromptTokens) + outputCost*float64(q.query.MaxTokens)
	t.demand.AddRequest(demand.Flow{Service: q.service, Model: q.model.Name, Cell: cell}, q.client, work, now)
	return denial, true
}

// settleRequest returns the unused part of what the request reserved.
func (t *tenantGate) settleRequest(q *gatewayRequest, now time.Time) {
	if !q.hasLease && !q.holdsConcurrency {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.hasLease {
		t.enforcer.SettleRequest(q.lease, q.actualCost(), now)
		return
	}
	t.enforcer.LeaveRequest(q.tenant)
}

// expectedOutput returns the expected length of one response of a model, at most limit.
func (t *tenantGate) expectedOutput(model string, limit int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.demand.ExpectedOutput(model, limit)
}

// learnOutput records the output length of a finished response.
func (t *tenantGate) learnOutput(model string, output int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.demand.LearnOutputLength(model, output)
}

// fillSummary writes the demand and the tenants' use into a summary.
func (t *tenantGate) fillSummary(s *capacity.Summary, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.demand.FillSummary(s, now)
	t.enforcer.FillSummary(s, now)
}

// listDayUse lists the use of daily budgets.
func (t *tenantGate) listDayUse() []tenant.DayUse {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.enforcer.ListDayUse()
}

// denialError returns the error that names the exceeded limit.
func denialError(d tenant.Denial) *openai.Error {
	if d.Code == openai.CodeQuota {
		return openai.BudgetSpent(d.Retry)
	}
	return openai.RateLimited(d.Code, d.Retry)
}

// estimateCost returns the estimated cost of the request.
func (q *gatewayRequest) estimateCost() tenant.RequestCost {
	return tenant.RequestCost{Tokens: q.query.PromptTokens + q.query.MaxTokens, Micros: q.model.Price.CostMicros(q.query.PromptTokens, 0, q.query.MaxTokens)}
}

// actualCost returns the actual cost of the request.
func (q *gatewayRequest) actualCost() tenant.RequestCost {
	if q.model == nil {
		return tenant.RequestCost{Tokens: q.totalTokens}
	}
	return tenant.RequestCost{Tokens: q.totalTokens, Micros: q.model.Price.CostMicros(q.usage.Prompt, q.usage.Cached, q.usage.Completion)}
}
