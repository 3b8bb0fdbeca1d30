package local

import (
	"context"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/decision"
	"github.com/spillway-lb/spillway/local/sched"
)

// traceRequest returns what this instance has recorded about a request.
func (i *instance) traceRequest(_ context.Context, q admin.TraceQuery) (*admin.TraceAnswer, error) {
	var parts [][]byte
	i.scheduler.update(func(s *sched.Scheduler) { parts = s.Reports.Decisions().Parts() })
	found := decision.FindRequest(parts, q.RequestID)
	return admin.NewTraceAnswer("local", i.path().String(), q.RequestID, &found, i.cfg.DecisionBytes <= 0), nil
}
