package sim

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/modelroute"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional/demand"
	"github.com/spillway-lb/spillway/regional/directive"
	"github.com/spillway-lb/spillway/regional/routing"
	"github.com/spillway-lb/spillway/regional/rtt"
	"github.com/spillway-lb/spillway/regional/tenant"
)

// gatewayModel is a simulated gateway: the router, the enforcer of limits and the demand tracker of a real one, without
// listeners and connections. The same calls with the same seed lead to the same decisions.
type gatewayModel struct {
	name, region string
	boot         uint64
	router       *routing.Router
	enforcer     *tenant.Enforcer
	demand       *demand.Tracker
	peerRTTs     *rtt.PeerTable
	directive    *uplink.Directive
	spec         *spec.Spec
	policy       routing.Policy
}

// gatewayModelConfig configures a gatewayModel.
type gatewayModelConfig struct {
	name, region string
	spec         *spec.Spec // in force until a directive arrives
	seed         uint64     // of all random choices
	boot         uint64     // distinguishes restarts, so that acknowledgements of an earlier run are recognized
	standalone   bool       // no global tier leases quotas: static shares hold from the beginning
}

// newGatewayModel returns a gateway without summaries.
func newGatewayModel(c gatewayModelConfig, now time.Time) *gatewayModel {
	g := &gatewayModel{
		name: c.name, region: c.region, boot: c.boot, demand: demand.NewTracker(), peerRTTs: rtt.NewPeerTable(),
		router:   routing.NewRouter(routing.RouterConfig{Name: c.name, Boot: c.boot, Rand: rand.New(rand.NewPCG(c.seed, 0x9a7e))}),
		enforcer: tenant.NewEnforcer(spec.LeaseHolder{Region: c.region, Gateway: c.name}, c.boot, c.standalone, now),
	}
	g.putInForce(&uplink.Directive{}, c.spec, now)
	return g
}

func (g *gatewayModel) putInForce(d *uplink.Directive, s *spec.Spec, now time.Time) {
	g.directive, g.spec, g.policy = d, s, directive.RoutingPolicy(d, s, g.region, now)
	g.enforcer.SetSpec(s)
	g.router.ApplyPolicy(g.policy, now)
	g.router.Rebuild(now)
}

// receiveSummary records a summary of one of the region's local instances.
func (g *gatewayModel) receiveSummary(s *capacity.Summary, now time.Time) {
	if g.router.ReceiveSummary(s, now) {
		g.router.Rebuild(now)
	}
}

// suspectEndpoint counts an endpoint as unreachable for a while after a failed connection.
func (g *gatewayModel) suspectEndpoint(endpoint string, now time.Time) {
	g.router.SuspectEndpoint(endpoint, now)
	g.router.Rebuild(now)
}

// applyDirective applies a directive whose spec is s.
func (g *gatewayModel) applyDirective(d *uplink.Directive, s *spec.Spec, now time.Time) {
	if d.Position().Compare(g.directive.Position()) < 0 {
		return
	}
	if x := d.Grant; x != nil {
		g.enforcer.ApplyGrant(directive.LeaseGrant(x), x.Boot, x.Mark, now)
	}
	g.putInForce(d, s, now)
}

// buildSummary returns the summary for the global tier.
func (g *gatewayModel) buildSummary(now time.Time) capacity.Summary {
	s := capacity.Summary{Models: g.router.MergeUsable(now).Models, Draining: g.policy.IsDrained(g.region, "", now)}
	s.RTTs = g.peerRTTs.AppendReport(nil, now)
	g.demand.FillSummary(&s, now)
	g.enforcer.FillSummary(&s, now)
	return capacity.FitToLimits(s)
}

// directiveFor returns the current directive for a local instance.
func (g *gatewayModel) directiveFor(to capacity.Path) *uplink.Directive {
	return directive.ForLocal(g.directive, g.region, g.router.View().LiveInstancesOf(to))
}

// directiveVersion changes whenever local instances must receive a new directive at once: the live instances or the
// policy have changed.
func (g *gatewayModel) directiveVersion() uint64 {
	n := g.directive.Index<<32 + g.directive.PlanEpoch
	for zone, list := range g.router.View().Live { // a sum, independent of the order
		for i := range list {
			n += xxhash.Sum64String(zone + "/" + list[i].Name + "/" + list[i].Endpoint)
		}
	}
	return n
}

// clientCall is a request as a gateway parses it.
type clientCall struct {
	tenant, model, service, cell string
	client                       netip.Addr
	class                        spec.Class
	promptTokens, maxTokens      int      // estimated prompt length; output limit in the request, 0 for none
	prefix                       []uint64 // hashes of the prompt's prefixes; not retained
	session                      uint64   // hash of the session that the request names; 0 for none
}

// routedRequest is a request at a gateway.
type routedRequest struct {
	routing.Attempt
	query       routing.RouteQuery
	prefixBuf   [capacity.MaxLandmarks]uint64
	tenant      *spec.Tenant
	model       *spec.Model
	reservation tenant.Reservation
	isReserved  bool
	usage       openai.TokenUsage
}

// admitRequest admits a client's request, or refuses it for a limit of its tenant, its residency, or an undeclared
// model.
func (g *gatewayModel) admitRequest(c *clientCall, now time.Time) (*routedRequest, *openai.Error) {
	r, e := g.newRequest(c)
	if e != nil {
		return nil, e
	}
	region := g.spec.FindRegion(g.region)
	if !g.spec.PermitsRegion(r.tenant, region) {
		return nil, openai.ResidencyDenied(g.region)
	}
	policy := &g.spec.Routing
	q := &r.query
	q.Spill, q.Margin, q.RetryCredit, r.MayRetry = policy.Spill == nil || *policy.Spill, time.Duration(policy.SpillMargin), policy.RetryBudget, true
	q.MaxTokens, q.Choices = g.demand.ExpectedOutput(c.model, demand.OutputLimit(r.model, c.maxTokens)), 1
	cost := tenant.RequestCost{Tokens: q.PromptTokens + q.MaxTokens, Micros: r.model.Price.CostMicros(q.PromptTokens, 0, q.MaxTokens)}
	reservation, denial, ok := g.enforcer.AdmitRequest(r.tenant, false, cost, now)
	if !ok {
		if denial.Code == openai.CodeQuota {
			return nil, openai.BudgetSpent(denial.Retry)
		}
		return nil, openai.RateLimited(denial.Code, denial.Retry)
	}
	if r.reservation, r.isReserved = reservation, true; reservation.Throttled {
		q.Class = spec.Batch
	}
	work := float64(q.PromptTokens) + g.router.View().OutputTokenCost(c.model)*float64(q.MaxTokens)
	g.demand.AddRequest(demand.Flow{Service: c.service, Model: c.model, Cell: c.cell}, c.client, work, now)
	return r, nil
}

// admitSpilled decides on a request of another region. within is the time, in seconds, that it may take here. Nil: it is
// refused before it starts.
func (g *gatewayModel) admitSpilled(c *clientCall, within float64, now time.Time) *routedRequest {
	r, e := g.newRequest(c)
	if e != nil {
		return nil
	}
	q := &r.query
	q.Hops, q.MaxTokens = 1, g.demand.ExpectedOutput(c.model, demand.OutputLimit(r.model, c.maxTokens))
	g.assignPool(r)
	if g.router.WhyRefuseSpilled(q, time.Duration(within*float64(time.Second)), r.model.TTFT.ForClass(q.Class), now) != "" {
		return nil
	}
	return r
}

func (g *gatewayModel) newRequest(c *clientCall) (*routedRequest, *openai.Error) {
	r := &routedRequest{tenant: g.spec.FindTenant(c.tenant), model: g.spec.FindModel(c.model)}
	switch {
	case g.spec.FindRegion(g.region) == nil:
		return nil, openai.NotReady()
	case r.tenant == nil:
		return nil, openai.InvalidAPIKey()
	case r.model == nil:
		return nil, openai.ModelNotFound(c.model, nil)
	}
	r.query = routing.RouteQuery{
		Model: c.model, PromptTokens: c.promptTokens, Class: c.class, Residency: r.tenant.Residency, Regions: r.tenant.Regions, Session: c.session,
	}
	r.query.Prefix = append(r.prefixBuf[:0], c.prefix[:min(len(c.prefix), len(r.prefixBuf))]...)
	return r, nil
}

func (g *gatewayModel) assignPool(r *routedRequest) {
	r.query.Pool, r.query.Overflow = "", false
	if p, _ := modelroute.FindPool(g.spec, r.tenant.Name, r.query.Model, r.query.Class); p != nil {
		r.query.Pool, r.query.Overflow = p.Name, p.Overflow
	}
}

// ticketOf returns the request's ticket in this gateway's ledger, for the local instance that receives the request.
func (g *gatewayModel) ticketOf(r *routedRequest) capacity.LedgerAck {
	return capacity.LedgerAck{Parent: g.name, Boot: g.boot, Ticket: r.Ticket}
}

// retriesLeft returns the retries that the request has left when it is forwarded.
func (r *routedRequest) retriesLeft() int {
	if r.MayRetry {
		return 1
	}
	return 0
}

// dispatchRequest chooses an endpoint for a request and begins an attempt there; false when no endpoint is eligible.
func (g *gatewayModel) dispatchRequest(r *routedRequest, now time.Time) bool {
	g.assignPool(r)
	return g.router.Dispatch(&r.query, &r.Attempt, now) == routing.Dispatched
}

// finishAttempt ends an attempt and learns from its usage. complete is set when the response was received to its end.
func (g *gatewayModel) finishAttempt(r *routedRequest, u openai.TokenUsage, complete bool) {
	if !g.router.Finish(&r.Attempt, u, complete) {
		return
	}
	if r.usage = u; complete {
		g.demand.LearnOutputLength(r.query.Model, u.Completion)
	}
}

// recordSpillOutcome records whether a peer refused or took a spilled request; true when it is to be routed again.
func (g *gatewayModel) recordSpillOutcome(r *routedRequest, refused bool, now time.Time) (again bool) {
	switch {
	case !r.Decision.IsSpilled():
	case refused:
		return g.router.RecordSpillRefusal(&r.query, &r.Decision, now)
	default:
		g.router.RecordSpillAcceptance(&r.query, &r.Decision)
	}
	return false
}

// takeRetry takes a retry from the budget for a request that failed at the chosen endpoint; false: it has none left.
func (g *gatewayModel) takeRetry(r *routedRequest, now time.Time) bool {
	if !r.MayRetry || !g.router.TakeRetry(now) {
		return false
	}
	r.MayRetry = false
	r.query.ExcludeEndpoint(r.Decision.Endpoint)
	return true
}

// resumeRequest turns a request whose stream was interrupted below into one for the rest of its response. made is the
// number of tokens already received, open the number of open streams here. It returns false when the request must not
// be resumed.
func (g *gatewayModel) resumeRequest(r *routedRequest, made, open int, now time.Time) bool {
	g.finishAttempt(r, openai.TokenUsage{}, false)
	if _, allowed := g.spec.ResumeLimit(r.tenant.Name); !allowed || !g.router.TakeResume(now, open) {
		return false
	}
	r.MayRetry = true
	r.query.PromptTokens += made
	r.query.MaxTokens = max(r.query.MaxTokens-made, 1)
	r.query.ExcludeEndpoint(r.Decision.Endpoint)
	return true
}

// settleRequest returns the unused part of the request's reservation once the request is over.
func (g *gatewayModel) settleRequest(r *routedRequest, now time.Time) {
	if r.isReserved {
		u := &r.usage
		used := tenant.RequestCost{Tokens: u.Prompt + u.Completion, Micros: r.model.Price.CostMicros(u.Prompt, u.Cached, u.Completion)}
		g.enforcer.SettleRequest(r.reservation, used, now)
	}
}
