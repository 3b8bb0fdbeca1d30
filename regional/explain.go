package regional

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/explain"
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
	q, err := explainQuery(ask, st)
	if err != nil {
		return nil, err
	}
	rec := explain.Record{
		Tier: "regional", Node: g.cfg.Name,
		Query: fmt.Sprintf("%s, %d prompt and %d output tokens, class %s", q.Model, q.PromptTokens, q.MaxTokens, q.Class),
	}
	if ask.Model != q.Model {
		rec.Note(fmt.Sprintf("%s is an alias; this time it resolved to %s", ask.Model, q.Model))
	}
	rec.Note(fmt.Sprintf("spec version %d, plan epoch %d, directive %d, %s old", st.directive.SpecVersion, st.directive.PlanEpoch,
		st.directive.Index, time.Since(st.received).Round(time.Millisecond)))
	if t := st.spec.Tenant(ask.Tenant); t != nil && !st.spec.Permits(t, st.home) {
		rec.Policy = "residency"
		rec.Choose("", zone.DropResidency)
		return []explain.Record{rec}, nil
	}
	v := g.view.Load()
	g.mu.Lock()
	q.Ledger = g.ledger
	verdict, ok := zone.Choose(q, v, time.Now(), g.rng, &rec)
	g.mu.Unlock()
	if !ok || verdict.Spilled() {
		return []explain.Record{rec}, nil
	}
	return append([]explain.Record{rec}, g.explainBelow(ctx, verdict.Path, ask, &rec)...), nil
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

func explainQuery(ask admin.ExplainQuery, st *state) (*zone.Query, error) {
	name, ok := st.spec.Resolve(ask.Model, 0)
	if !ok {
		return nil, fmt.Errorf("no model or alias is called %q: see /v1/models", ask.Model)
	}
	class, err := spec.ParseClass(ask.Class)
	if err != nil {
		return nil, err
	}
	q := &zone.Query{
		Model: name, PromptTokens: explainPrompt, MaxTokens: explainOutput, Class: class,
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
			return nil, fmt.Errorf("no tenant is called %q", ask.Tenant)
		}
		q.Residency, q.Class = t.Residency, max(class, t.Class)
	}
	return q, nil
}
