package local

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/local/autoscale"
	"github.com/spillway-lb/spillway/local/sched"
)

// answerAutoscaling answers GET /v1/autoscaling; an empty model means all models.
func (a *Agent) answerAutoscaling(_ context.Context, model string) (*admin.AutoscalingAnswer, error) {
	now := time.Now()
	out := &admin.AutoscalingAnswer{Node: a.path().String(), Models: a.scheduler.listAutoscaling(model, now, true)}
	if model != "" && len(out.Models) == 0 {
		return nil, &admin.Error{
			Status: http.StatusNotFound, Message: fmt.Sprintf("no model %.100q is served or declared here", model),
			Hint: "GET /v1/autoscaling lists those that are",
		}
	}
	return out, nil
}

// listAutoscaling describes the recommendation for one model, or for all models when model is empty. With refresh it is
// computed now.
func (z *zoneScheduler) listAutoscaling(model string, now time.Time, refresh bool) []admin.AutoscalingModel {
	var list []sched.AutoscalingReport
	z.update(func(s *sched.Scheduler) {
		if refresh {
			s.Autoscaling.UpdateAutoscaling(now)
		}
		list = s.Reports.ListAutoscaling(model, now)
	})
	out := make([]admin.AutoscalingModel, 0, len(list))
	for i := range list {
		m := &list[i]
		out = append(out, admin.AutoscalingModel{
			Model: m.Model, Desired: m.Desired, Needed: m.Needed, Ready: m.Ready, Total: m.Total, Warm: m.Warm, Cold: m.Cold, Waiting: m.Waiting,
			Saturation: m.Saturation, Target: m.Target, LeadSeconds: m.Lead.Seconds(),
			Demand: toTokenRates(m.Demand), Trend: toTokenRates(m.Trend), Capacity: toTokenRates(m.Capacity),
			WaitP50: m.WaitP50, WaitP99: m.WaitP99, PredictedWait: m.PredictedWait.Seconds(),
		})
	}
	return out
}

func toTokenRates(d autoscale.TokenDemand) admin.TokenRates {
	return admin.TokenRates{Prefill: d.Prefill, Decode: d.Decode}
}
