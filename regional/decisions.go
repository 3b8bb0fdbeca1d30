package regional

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/decision"
)

// logRequestEnd adds the end of a request to the log of decisions.
func (s *sharedRouter) logRequestEnd(q *gatewayRequest, now time.Time) {
	if s.decisions == nil {
		return
	}
	a, u := &q.access, &q.usage
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := &s.decisions.Scratch
	rec.Reset()
	rec.Event, rec.At, rec.RequestID, rec.Class = decision.EventEnd, now, q.hop.RequestID, classOf(q)
	rec.Chosen, rec.Reason, rec.Outcome, rec.Status = a.route, a.code, q.outcomeName(), a.status
	if rec.Chosen == "" {
		rec.Chosen = a.decision
	}
	rec.PromptTokens, rec.CachedTokens, rec.OutputTokens = int64(u.Prompt), int64(u.Cached), int64(u.Completion)
	rec.Attempts, rec.Duration = q.attempts, now.Sub(q.arrived)
	if !a.firstByteAt.IsZero() {
		rec.FirstByte = a.firstByteAt.Sub(q.arrived)
	}
	if q.tenant != nil {
		rec.Tenant = q.tenant.Name
	}
	if q.model != nil {
		rec.Model = q.model.Name
	}
	s.decisions.AddRecord(rec)
}

// decisionParts returns the bytes of the log of decisions.
func (s *sharedRouter) decisionParts() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.decisions.Parts()
}

// traceRequest returns what this gateway and the local instances of its region have recorded about a request.
func (a *adminService) traceRequest(ctx context.Context, q admin.TraceQuery) (*admin.TraceAnswer, error) {
	found := decision.FindRequest(a.router.decisionParts(), q.RequestID)
	out := admin.NewTraceAnswer("regional", a.cfg.Region+"/"+a.cfg.Name, q.RequestID, &found, a.router.decisions == nil)
	locals := a.router.view.Load().Locals
	answers := make([]*admin.TraceAnswer, len(locals))
	places := make(chan struct{}, maxConcurrentQueries)
	var wg sync.WaitGroup
	for i := range locals {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			answers[i] = a.traceAtLocal(ctx, locals[i].Summary.Path, q)
		})
	}
	wg.Wait()
	for _, x := range answers {
		out.MergeAnswer(x)
	}
	return out, nil
}

// traceAtLocal queries one local instance. If it does not answer, the answer has the reason.
func (a *adminService) traceAtLocal(ctx context.Context, p capacity.Path, q admin.TraceQuery) *admin.TraceAnswer {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	out := new(admin.TraceAnswer)
	payload, err := json.Marshal(q)
	if err == nil {
		payload, err = a.parent.QueryChild(ctx, p, admin.QueryTrace, payload)
	}
	if err == nil {
		err = json.Unmarshal(payload, out)
	}
	if err != nil {
		return admin.UnansweredTrace("local", p.String(), err)
	}
	return out
}

// answerTrace answers a query of the global tier.
func (a *adminService) answerTrace(ctx context.Context, payload []byte) ([]byte, error) {
	var q admin.TraceQuery
	if err := json.Unmarshal(payload, &q); err != nil {
		return nil, fmt.Errorf("reading the query: %w", err)
	}
	out, err := a.traceRequest(ctx, q)
	if err != nil {
		return nil, err
	}
	return json.Marshal(out)
}
