package local

import (
	"context"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/local/queue"
	"github.com/spillway-lb/spillway/local/sched"
)

// maxShownTenants bounds the tenants per class in the answer to an operator.
const maxShownTenants = 50

// answerQueue returns the state of all queues.
func (a *Agent) answerQueue(context.Context) (*admin.QueueAnswer, error) {
	return &admin.QueueAnswer{Node: a.path().String(), Models: a.scheduler.describeQueues(maxShownTenants)}, nil
}

// describeQueues describes every model's queue, sorted by model, with at most so many tenants of each class.
func (z *zoneScheduler) describeQueues(tenants int) []admin.QueueModel {
	var list []sched.QueueReport
	z.update(func(s *sched.Scheduler) { list = s.Reports.DescribeQueues(tenants, time.Now()) })
	out := make([]admin.QueueModel, 0, len(list))
	for i := range list {
		out = append(out, toQueueModel(&list[i]))
	}
	return out
}

func toQueueModel(s *sched.QueueReport) admin.QueueModel {
	m := admin.QueueModel{
		Model: s.Model, Panic: s.Panic,
		Waiting: s.Waiting, MaxWaiting: s.MaxItems, Bytes: s.Bytes, MaxBytes: s.MaxBytes, DrainRate: s.DrainRate,
		Saturation: s.Saturation, ShedProbability: s.ShedProbability,
	}
	for i := range s.Classes {
		m.Classes = append(m.Classes, toQueueClass(&s.Classes[i]))
	}
	return m
}

func toQueueClass(s *queue.ClassSnapshot) admin.QueueClass {
	c := admin.QueueClass{
		Class: s.Class.String(), Weight: s.Weight, Waiting: s.Waiting, Running: s.Running, Tokens: s.Work, Bytes: s.Bytes,
		OldestMS: s.Oldest.Milliseconds(), WaitMS: s.Wait.Milliseconds(), Passed: s.EnteredDirectly, Taken: s.PlacedAfterWait, Gone: s.Removed,
		Evicted: s.Evicted, Refused: map[string]uint64{}, Tenants: []admin.QueueTenant{}, TenantCount: s.AllTenants,
	}
	if s.Wait < 0 {
		c.WaitMS = -1
	}
	for r, n := range s.Refused {
		if why := queue.Refusal(r); why != queue.Accepted && n > 0 {
			c.Refused[why.String()] = n
		}
	}
	for _, t := range s.Tenants {
		c.Tenants = append(c.Tenants, admin.QueueTenant{
			Tenant: t.Tenant, Waiting: t.Waiting, Running: t.Running, Tokens: t.Work, Bytes: t.Bytes,
			AheadSeconds: t.AheadSeconds, NextDueMS: t.NextDue.Milliseconds(),
		})
	}
	return c
}
