package sched

import (
	"time"

	"github.com/spillway-lb/spillway/internal/decision"
	"github.com/spillway-lb/spillway/local/pick"
)

// beginRecord returns a record about a request, in the memory of the log. The log must not be nil.
func (z *zoneState) beginRecord(event decision.RecordKind, v *Request, now time.Time) *decision.Record {
	rec := &z.decisions.Scratch
	rec.Reset()
	rec.Event, rec.At, rec.RequestID, rec.Tenant, rec.Model, rec.Class = event, now, v.ID, v.Tenant, v.Model, v.Class.String()
	return rec
}

// logChoice records a choice. It is called before the attempt is entered in the in-flight ledger.
func (z *zoneState) logChoice(v *Request, p *modelGroup, choice pick.Choice, hedged bool, now time.Time) {
	if z.decisions == nil {
		return
	}
	rec := z.beginRecord(decision.EventChoice, v, now)
	rec.PromptTokens, rec.OutputTokens, rec.Waited = v.Query.PromptTokens, v.Query.OutputTokens, v.QueueItem.WaitTime(now)
	pick.FillDecision(p.view, choice, rec)
	if hedged {
		rec.Reason = "hedge"
	}
	z.decisions.AddRecord(rec)
}

// logRefusal records that a request got no worker, with the code of the refusal.
func (z *zoneState) logRefusal(v *Request, code string, now time.Time) {
	if z.decisions == nil {
		return
	}
	rec := z.beginRecord(decision.EventRefuse, v, now)
	rec.PromptTokens, rec.OutputTokens, rec.Waited, rec.Reason = v.Query.PromptTokens, v.Query.OutputTokens, v.QueueItem.WaitTime(now), code
	z.decisions.AddRecord(rec)
}

// logAttemptEnd records how an attempt ended.
func (z *zoneState) logAttemptEnd(at *Attempt, o *AttemptOutcome, now time.Time) {
	if z.decisions == nil {
		return
	}
	rec := z.beginRecord(decision.EventEnd, at.Request, now)
	rec.Chosen, rec.Outcome, rec.Status, rec.Duration = at.Worker.Spec.Name, o.describe(), o.Status, now.Sub(at.SentAt)
	if !at.firstByteAt.IsZero() {
		rec.FirstByte = at.firstByteAt.Sub(at.SentAt)
	}
	if o.Usage.Stated {
		rec.PromptTokens, rec.CachedTokens, rec.OutputTokens = int64(o.Usage.Prompt), int64(o.Usage.Cached), int64(o.Usage.Completion)
	}
	z.decisions.AddRecord(rec)
}
