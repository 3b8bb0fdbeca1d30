package regional

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/modelroute"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional/routing"
)

const (
	explainPromptTokens = 1000 // tokens, when the query has no prompt
	explainOutputTokens = 256
)

// explainRoute repeats the choice that a request would get now, and then queries the local instance that it would
// go to.
func (a *adminService) explainRoute(ctx context.Context, ask admin.ExplainQuery) ([]explain.Explanation, error) {
	st := a.policy.Load()
	if !st.isReady() {
		return nil, fmt.Errorf("gateway %s has not received its configuration yet", a.cfg.Name)
	}
	q, rule, err := parseExplainQuery(ask, st)
	if err != nil {
		return nil, err
	}
	rec := explain.Explanation{
		Tier: "regional", Node: a.cfg.Name,
		Query: fmt.Sprintf("%s, %d prompt and %d output tokens, class %s", q.Model, q.PromptTokens, q.MaxTokens, q.Class),
	}
	if rule.Target != nil {
		rec.AddNote(rule.ExplainRule())
	}
	if st.directive.IsStaged {
		rec.AddNote(fmt.Sprintf("spec version %d is staged in this region (stage %d)", st.directive.SpecVersion, st.directive.StageNumber))
	}
	rec.AddNote(fmt.Sprintf("spec version %d, plan epoch %d, directive %d, %s old", st.directive.SpecVersion, st.directive.PlanEpoch,
		st.directive.Index, time.Since(st.receivedAt).Round(time.Millisecond)))
	for _, note := range st.describePeerRTTs() {
		rec.AddNote(note)
	}
	if t := st.spec.FindTenant(ask.Tenant); t != nil && !st.spec.PermitsRegion(t, st.region) {
		rec.Policy = "residency"
		rec.SetChosen("", routing.ReasonResidency)
		return []explain.Explanation{rec}, nil
	}
	if p, _ := modelroute.FindPool(st.spec, ask.Tenant, q.Model, q.Class); p != nil {
		q.Pool, q.Overflow = p.Name, p.Overflow
	}
	d, ok := a.router.previewRoute(q, time.Now(), &rec)
	if rule.Rule != modelroute.RulePin {
		d, ok = a.explainFallback(st, ask.Tenant, q, d, ok, &rec)
	}
	ask = withResolvedQuery(ask, q)
	if !ok || d.IsSpilled() {
		return []explain.Explanation{rec}, nil
	}
	return append([]explain.Explanation{rec}, a.explainAtLocal(ctx, d.Path, ask, &rec)...), nil
}

// withResolvedQuery returns the query for the tier below with all values resolved, so that the class of the tenant
// and the lengths are the same in every tier's explanation.
func withResolvedQuery(ask admin.ExplainQuery, q *routing.RouteQuery) admin.ExplainQuery {
	ask.Model, ask.Target = q.Model, ""
	ask.Class, ask.PromptTokens, ask.MaxTokens = q.Class.String(), int64(q.PromptTokens), int64(q.MaxTokens)
	return ask
}

// explainAtLocal queries the local instance. If that fails, the explanation contains the reason.
func (a *adminService) explainAtLocal(ctx context.Context, p capacity.Path, ask admin.ExplainQuery, rec *explain.Explanation) []explain.Explanation {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var records []explain.Explanation
	payload, err := json.Marshal(ask)
	if err == nil {
		payload, err = a.parent.QueryChild(ctx, p, admin.QueryExplain, payload)
	}
	if err == nil {
		err = json.Unmarshal(payload, &records)
	}
	if err != nil {
		return []explain.Explanation{{Tier: "local", Node: p.String(), Query: rec.Query, Reason: "unknown", Notes: []string{"did not answer: " + err.Error()}}}
	}
	return records
}

// explainFallback adds the fallback model that would serve the request instead, if any.
func (a *adminService) explainFallback(st *gatewayPolicy, tenant string, q *routing.RouteQuery, d routing.RouteDecision, ok bool, rec *explain.Explanation) (routing.RouteDecision, bool) {
	m := st.spec.FindModel(q.Model)
	target := m.TTFT.ForClass(q.Class)
	if ok && d.MeetsTarget(target.Seconds()) {
		return d, ok
	}
	for f := range modelroute.FallbackModels(st.spec, st.spec.FindTenant(tenant), m) {
		alt := *q
		alt.Model = f.Name
		if instead, found := a.router.previewRoute(&alt, time.Now(), nil); found && instead.MeetsTarget(target.Seconds()) {
			rec.AddNote(fmt.Sprintf("%s cannot meet the target of %s; its fallback %s can, in %.3fs at %s, and would answer", m.Name, target, f.Name, instead.TTFTSeconds, instead.Path))
			q.Model = f.Name
			return instead, true
		}
	}
	return d, ok
}

func parseExplainQuery(ask admin.ExplainQuery, st *gatewayPolicy) (*routing.RouteQuery, modelroute.ResolvedModel, error) {
	rule, err := modelroute.ResolveModel(st.spec, &modelroute.ModelQuery{
		Model: ask.Model, Pin: ask.Target, Tenant: ask.Tenant, Session: ask.Session, Header: ask.Headers, Client: ask.From,
		Chance: rand.Float64(),
	})
	if errors.Is(err, modelroute.ErrUnknownModel) {
		err = fmt.Errorf("no model or alias is called %q: see /v1/models", ask.Model)
	}
	if err != nil {
		return nil, rule, err
	}
	class, err := spec.ParseClass(ask.Class)
	if err != nil {
		return nil, rule, err
	}
	q := &routing.RouteQuery{
		Model: rule.Model, PromptTokens: explainPromptTokens, MaxTokens: explainOutputTokens, Class: class,
		Spill: st.spec.Routing.Spill == nil || *st.spec.Routing.Spill, Margin: time.Duration(st.spec.Routing.SpillMargin),
	}
	if ask.PromptTokens > 0 {
		q.PromptTokens = int(min(ask.PromptTokens, 1<<30))
	}
	if ask.MaxTokens > 0 {
		q.MaxTokens = int(min(ask.MaxTokens, 1<<30))
	}
	if ask.Tenant != "" {
		t := st.spec.FindTenant(ask.Tenant)
		if t == nil {
			return nil, rule, fmt.Errorf("no tenant is called %q", ask.Tenant)
		}
		q.Residency, q.Regions, q.Class = t.Residency, t.Regions, t.Class
		if ask.Class != "" {
			q.Class = max(class, t.Class)
		}
	}
	return q, rule, nil
}
