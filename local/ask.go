package local

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
)

// onAsk answers a gateway's question.
func (a *Agent) onAsk(_ context.Context, kind string, payload []byte) ([]byte, error) {
	switch kind {
	case admin.AskStatus:
		return json.Marshal(a.Status())
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
	model := q.Model
	if m, ok := a.policy.Load().spec.Resolve(model, rand.Float64()); ok {
		model = m
	}
	v := &visit{
		r: &http.Request{Method: http.MethodPost, URL: pathURL(openai.PathChat)}, model: model, class: c,
		estimate: max(q.PromptTokens, 1), excluded: [2]int32{-1, -1},
	}
	v.hop.Tenant = q.Tenant
	v.env.MaxTokens, v.env.N = int(max(min(q.MaxTokens, 1<<30), 0)), 1
	rec := explain.Record{Tier: "local", Node: a.path().String()}
	a.floor.explain(v, &rec, time.Now())
	if rec.Query == "" {
		rec.Query = "model " + model + ": no worker serves it"
	}
	return []explain.Record{rec}, nil
}
