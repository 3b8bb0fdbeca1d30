package routing

import (
	"time"

	"github.com/spillway-lb/spillway/internal/decision"
)

// Decisions returns the log of decisions, nil when none is kept.
func (r *Router) Decisions() *decision.Ring { return r.decisions }

// chooseAndLog returns the decision about a query and records it.
func (r *Router) chooseAndLog(q *RouteQuery, now time.Time) (RouteDecision, bool) {
	if r.decisions == nil {
		return r.Preview(q, now, nil)
	}
	q.Ledger, q.SpillBudgets, q.SpillShare = r.ledger, r.spillBudgets, r.policy.SpillShare
	rec := &r.decisions.Scratch
	rec.Reset()
	if r.inputs != nil {
		r.inputs.recordView(r.view, now)
		r.inputs.beginChoice(q)
	}
	d, ok := chooseRoute(q, r.view, now, r.cfg.Rand, costSink{log: rec})
	r.logChoice(q, &d, ok, rec, now)
	return d, ok
}

// logChoice completes the record of a choice and adds it to the log.
func (r *Router) logChoice(q *RouteQuery, d *RouteDecision, ok bool, rec *decision.Record, now time.Time) {
	rec.At, rec.RequestID, rec.Tenant, rec.Model, rec.Class = now, q.RequestID, q.Tenant, q.Model, q.Class.String()
	rec.PromptTokens, rec.OutputTokens, rec.CachedTokens = int64(q.PromptTokens), int64(q.MaxTokens), d.CachedTokens
	if rec.Event, rec.Reason = decision.EventRefuse, ReasonNoneServes; ok {
		rec.Event, rec.Reason, rec.PredictedTTFT = decision.EventChoice, d.Reason, d.TTFTSeconds
		rec.Chosen = r.nameOf(d)
	}
	rec.KeepBest()
	if r.inputs != nil {
		if rec.Inputs = r.inputs.appendInputs(rec.Inputs, q, r.view, d, ok, now); len(rec.Inputs) > maxInputBytes {
			rec.Inputs = rec.Inputs[:0]
		}
	}
	r.decisions.AddRecord(rec)
}

// nameOf returns the name of the chosen candidate.
func (r *Router) nameOf(d *RouteDecision) string {
	if d.IsSpilled() {
		return d.Path.Region
	}
	for i := range r.view.Locals {
		if l := &r.view.Locals[i]; l.Summary.Path == d.Path {
			return l.pathName()
		}
	}
	return d.Path.String()
}
