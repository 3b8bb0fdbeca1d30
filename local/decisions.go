package local

import (
	"context"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/decision"
	"github.com/spillway-lb/spillway/internal/decisionfile"
	"github.com/spillway-lb/spillway/local/sched"
)

// traceRequest returns what this instance has recorded about a request.
func (i *instance) traceRequest(_ context.Context, q admin.TraceQuery) (*admin.TraceAnswer, error) {
	var parts [][]byte
	i.scheduler.update(func(s *sched.Scheduler) { parts = s.Reports.Decisions().Parts() })
	found := decision.FindRequest(parts, q.RequestID)
	return admin.NewTraceAnswer("local", i.path().String(), q.RequestID, &found, i.cfg.DecisionBytes <= 0), nil
}

// openDecisionFile opens the file of decisions, nil without one.
func (i *instance) openDecisionFile() (*decisionfile.FileWriter, error) {
	if i.cfg.DecisionFile == "" || i.cfg.DecisionBytes <= 0 {
		return nil, nil
	}
	return decisionfile.New(decisionfile.Config{
		Path: i.cfg.DecisionFile, MaxBytes: i.cfg.DecisionFileBytes, Log: i.log,
		ReadNew: func(p decisionfile.Positions) (out decisionfile.NewRecords) {
			i.scheduler.update(func(s *sched.Scheduler) {
				out.Decisions, out.Next.Decisions, out.Lost = s.Reports.Decisions().PartsFrom(p.Decisions)
			})
			return out
		},
	})
}
