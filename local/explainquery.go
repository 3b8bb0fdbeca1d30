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
	"github.com/spillway-lb/spillway/internal/modelroute"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/sched"
)

// answerQuery answers a query that a gateway sends over the uplink.
func (a *Agent) answerQuery(_ context.Context, kind string, payload []byte) ([]byte, error) {
	switch kind {
	case admin.QueryStatus:
		return json.Marshal(a.buildStatus(true))
	case admin.QueryExplain:
		var q admin.ExplainQuery
		if err := json.Unmarshal(payload, &q); err != nil {
			return nil, fmt.Errorf("reading the query: %w", err)
		}
		recs, err := a.Explain(q)
		if err != nil {
			return nil, err
		}
		return json.Marshal(recs)
	}
	return nil, fmt.Errorf("a local instance does not support the query %q", kind)
}

// Explain replays, without side effects, the choice that a request like q would get now.
func (a *Agent) Explain(q admin.ExplainQuery) ([]explain.Explanation, error) {
	c, err := spec.ParseClass(q.Class)
	if err != nil {
		return nil, err
	}
	o, model := a.policy.Load(), q.Model
	rec := explain.Explanation{Tier: "local", Node: a.path().String()}
	rule, err := modelroute.ResolveModel(o.Spec, &modelroute.ModelQuery{
		Model: q.Model, Pin: q.Target, Tenant: q.Tenant, Session: q.Session, Header: q.Headers, Client: q.From, Chance: rand.Float64(),
	})
	if err == nil && rule.Target != nil {
		model = rule.Model
		rec.AddNote(rule.ExplainRule())
	}
	if not := (*modelroute.NotATargetError)(nil); errors.As(err, &not) {
		return nil, err
	}
	v := newZoneRequest(&http.Request{Method: http.MethodPost, URL: newPathURL(openai.PathChat)}, openai.ShapeChat)
	v.Model, v.Class, v.EstimatedTokens = model, c, max(q.PromptTokens, 1)
	v.Tenant, v.EstimateIsExact = q.Tenant, q.PromptTokens > 0
	if t := o.Spec.FindTenant(q.Tenant); t != nil {
		if v.Class = t.Class; q.Class != "" {
			v.Class = max(c, t.Class)
		}
	}
	if a.cfg.Plain {
		v.Tenant, v.Class = spec.DefaultTenant, a.handler.standaloneClass(c, q.Class != "")
	}
	v.Envelope.MaxTokens, v.Envelope.N = int(max(min(q.MaxTokens, 1<<30), 0)), 1
	v.namedLimit = v.Envelope.MaxTokens
	a.explainRules(v, o, rule.Rule, &rec)
	v.setAffinity(o)
	a.scheduler.update(func(s *sched.Scheduler) { s.Reports.ExplainChoice(&v.Request, &rec, time.Now()) })
	if rec.Query == "" {
		rec.Query = "model " + v.Model + ": no worker serves it"
	}
	return []explain.Explanation{rec}, nil
}

// explainRules notes which fallback model would answer instead, if any, and the pool of the request.
func (a *Agent) explainRules(v *zoneRequest, o *zonePolicy, rule string, rec *explain.Explanation) {
	if m := o.Spec.FindModel(v.Model); a.cfg.Plain && m != nil && rule != modelroute.RulePin {
		if f := a.handler.chooseFallback(v, o, m); f != nil {
			rec.AddNote(fmt.Sprintf("%s cannot meet the target of %s; its fallback %s can and would answer", m.Name, o.TTFTTarget(m.Name, v.Class), f.Name))
			v.Model = f.Name
		}
	}
	if p, _ := modelroute.FindPool(o.Spec, v.Tenant, v.Model, v.Class); p != nil {
		rec.AddNote("the request is of the pool " + p.Name)
	}
}
