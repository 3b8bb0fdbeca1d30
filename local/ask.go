package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/route"
	"github.com/spillway-lb/spillway/internal/spec"
)

// onAsk answers a gateway's question.
func (a *Agent) onAsk(_ context.Context, kind string, payload []byte) ([]byte, error) {
	switch kind {
	case admin.AskStatus:
		return json.Marshal(a.ownStatus())
	case admin.AskExplain:
		var q admin.ExplainQuery
		if err := json.Unmarshal(payload, &q); err != nil {
			return nil, fmt.Errorf("reading the question: %w", err)
		}
		recs, err := a.Explain(q)
		if err != nil {
			return nil, err
		}
		return json.Marshal(recs)
	}
	return nil, fmt.Errorf("a local instance does not answer %q", kind)
}

// Explain replays the choice that a request like q would meet now.
func (a *Agent) Explain(q admin.ExplainQuery) ([]explain.Record, error) {
	c, err := spec.ParseClass(q.Class)
	if err != nil {
		return nil, err
	}
	o, model := a.policy.Load(), q.Model
	rec := explain.Record{Tier: "local", Node: a.path().String()}
	rule, err := route.Resolve(o.spec, &route.Ask{
		Model: q.Model, Pin: q.Target, Tenant: q.Tenant, Session: q.Session, Header: q.Headers, Client: q.From, Chance: rand.Float64(),
	})
	if err == nil && rule.Target != nil {
		model = rule.Model
		rec.Note(rule.Why())
	}
	if not := (*route.NotATarget)(nil); errors.As(err, &not) {
		return nil, err
	}
	v := &visit{
		r: &http.Request{Method: http.MethodPost, URL: pathURL(openai.PathChat)}, model: model, class: c,
		estimate: max(q.PromptTokens, 1), excluded: [2]int32{-1, -1},
	}
	v.hop.Tenant, v.exact = q.Tenant, q.PromptTokens > 0
	if t := o.spec.Tenant(q.Tenant); t != nil {
		if v.class = t.Class; q.Class != "" {
			v.class = max(c, t.Class)
		}
	}
	if a.cfg.Plain {
		v.hop.Tenant, v.class = spec.TenantAlone, a.classAlone(c, q.Class != "")
	}
	v.env.MaxTokens, v.env.N = int(max(min(q.MaxTokens, 1<<30), 0)), 1
	v.named = v.env.MaxTokens
	a.explainRules(v, o, rule.Rule, &rec)
	a.floor.explain(v, &rec, time.Now())
	if rec.Query == "" {
		rec.Query = "model " + v.model + ": no worker serves it"
	}
	return []explain.Record{rec}, nil
}
