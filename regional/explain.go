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
	"github.com/spillway-lb/spillway/internal/route"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional/zone"
)

const (
	explainPrompt = 1000 // tokens, when the question names no prompt
	explainOutput = 256
)

// explain replays the choice that a request would meet now, and then asks the local that it would go to.
func (g *Gateway) explain(ctx context.Context, ask admin.ExplainQuery) ([]explain.Record, error) {
	st := g.state.Load()
	if !st.ready() {
		return nil, fmt.Errorf("gateway %s has not received its configuration yet", g.cfg.Name)
	}
	q, rule, err := explainQuery(ask, st)
	if err != nil {
		return nil, err
	}
	rec := explain.Record{
		Tier: "regional", Node: g.cfg.Name,
		Query: fmt.Sprintf("%s, %d prompt and %d output tokens, class %s", q.Model, q.PromptTokens, q.MaxTokens, q.Class),
	}
	if rule.Target != nil {
		rec.Note(rule.Why())
	}
	if st.directive.Candidate {
		rec.Note(fmt.Sprintf("spec version %d is on trial here (stage %d)", st.directive.SpecVersion, st.directive.Stage))
	}
	rec.Note(fmt.Sprintf("spec version %d, plan epoch %d, directive %d, %s old", st.directive.SpecVersion, st.directive.PlanEpoch,
		st.directive.Index, time.Since(st.received).Round(time.Millisecond)))
	for _, note := range st.peerNotes() {
		rec.Note(note)
	}
	if t := st.spec.Tenant(ask.Tenant); t != nil && !st.spec.Permits(t, st.home) {
		rec.Policy = "residency"
		rec.Choose("", zone.DropResidency)
		return []explain.Record{rec}, nil
	}
	v := g.view.Load()
	g.mu.Lock()
	if p, _ := route.PoolOf(st.spec, ask.Tenant, q.Model, q.Class); p != nil {
		q.Pool, q.Overflow = p.Name, p.Overflow
	}
	q.Ledger, q.Spills, q.SpillShare = g.ledger, g.spills, st.spillShare()
	verdict, ok := zone.Choose(q, v, time.Now(), g.rng, &rec)
	if rule.Rule != route.RulePin {
		verdict, ok = g.explainFallback(st, ask.Tenant, q, verdict, ok, v, &rec)
	}
	g.mu.Unlock()
	ask = resolved(ask, q)
	if !ok || verdict.Spilled() {
		return []explain.Record{rec}, nil
	}
	return append([]explain.Record{rec}, g.explainBelow(ctx, verdict.Path, ask, &rec)...), nil
}

// resolved is the question for the tier below, which resolves nothing itself and assumes nothing of its own: the class of
// the tenant and the lengths are the same in every tier's record.
func resolved(ask admin.ExplainQuery, q *zone.Query) admin.ExplainQuery {
	ask.Model, ask.Target = q.Model, ""
	ask.Class, ask.PromptTokens, ask.MaxTokens = q.Class.String(), int64(q.PromptTokens), int64(q.MaxTokens)
	return ask
}

// explainBelow asks the local; what it cannot say is noted in its place.
func (g *Gateway) explainBelow(ctx context.Context, p capacity.Path, ask admin.ExplainQuery, rec *explain.Record) []explain.Record {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var records []explain.Record
	payload, err := json.Marshal(ask)
	if err == nil {
		payload, err = g.parent.Ask(ctx, p, admin.AskExplain, payload)
	}
	if err == nil {
		err = json.Unmarshal(payload, &records)
	}
	if err != nil {
		return []explain.Record{{Tier: "local", Node: p.String(), Query: rec.Query, Reason: "unknown", Notes: []string{"did not answer: " + err.Error()}}}
	}
	return records
}

// explainFallback says which fallback would answer instead, if one would.
func (g *Gateway) explainFallback(st *state, tenant string, q *zone.Query, verdict zone.Verdict, ok bool, v *zone.View, rec *explain.Record) (zone.Verdict, bool) {
	m := st.spec.ModelNamed(q.Model)
	target := m.TTFT.Of(q.Class)
	if ok && meets(&verdict, target) {
		return verdict, ok
	}
	for f := range route.Fallbacks(st.spec, st.spec.Tenant(tenant), m) {
		alt := *q
		alt.Model = f.Name
		if instead, found := zone.Choose(&alt, v, time.Now(), g.rng, nil); found && meets(&instead, target) {
			rec.Note(fmt.Sprintf("%s cannot meet the target of %s; its fallback %s can, in %.3fs at %s, and would answer", m.Name, target, f.Name, instead.Seconds, instead.Path))
			q.Model = f.Name
			return instead, true
		}
	}
	return verdict, ok
}

func explainQuery(ask admin.ExplainQuery, st *state) (*zone.Query, route.Answer, error) {
	rule, err := route.Resolve(st.spec, &route.Ask{
		Model: ask.Model, Pin: ask.Target, Tenant: ask.Tenant, Session: ask.Session, Header: ask.Headers, Client: ask.From,
		Chance: rand.Float64(),
	})
	if errors.Is(err, route.ErrUnknown) {
		err = fmt.Errorf("no model or alias is called %q: see /v1/models", ask.Model)
	}
	if err != nil {
		return nil, rule, err
	}
	class, err := spec.ParseClass(ask.Class)
	if err != nil {
		return nil, rule, err
	}
	q := &zone.Query{
		Model: rule.Model, PromptTokens: explainPrompt, MaxTokens: explainOutput, Class: class,
		Spill: st.spec.Routing.Spill == nil || *st.spec.Routing.Spill, Margin: time.Duration(st.spec.Routing.SpillMargin),
	}
	if ask.PromptTokens > 0 {
		q.PromptTokens = int(min(ask.PromptTokens, 1<<30))
	}
	if ask.MaxTokens > 0 {
		q.MaxTokens = int(min(ask.MaxTokens, 1<<30))
	}
	if ask.Tenant != "" {
		t := st.spec.Tenant(ask.Tenant)
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
