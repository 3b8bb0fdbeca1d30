package local

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/local/queue"
)

// shownTenants bounds the tenants of a class that an operator is shown.
const shownTenants = 50

// adminQueue says who waits.
func (a *Agent) adminQueue(context.Context) (*admin.QueueAnswer, error) {
	return &admin.QueueAnswer{Node: a.path().String(), Models: a.floor.queues(shownTenants, time.Now())}, nil
}

// queues describes every model's queue, by name.
func (f *floor) queues(tenants int, now time.Time) []admin.QueueModel {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]admin.QueueModel, 0, len(f.pools))
	for name, p := range f.pools {
		m := queueModel(p.queue.Snapshot(now, tenants))
		m.Model, m.Panic = name, p.panics
		out = append(out, m)
	}
	slices.SortFunc(out, func(x, y admin.QueueModel) int { return strings.Compare(x.Model, y.Model) })
	return out
}

func queueModel(s queue.Snapshot) admin.QueueModel {
	m := admin.QueueModel{
		Waiting: s.Waiting, MaxWaiting: s.MaxItems, Bytes: s.Bytes, MaxBytes: s.MaxBytes, DrainRate: s.DrainRate,
		Saturation: s.Saturation, ShedProbability: s.ShedProbability,
	}
	for i := range s.Classes {
		m.Classes = append(m.Classes, queueClass(&s.Classes[i]))
	}
	return m
}

func queueClass(s *queue.ClassSnapshot) admin.QueueClass {
	c := admin.QueueClass{
		Class: s.Class.String(), Weight: s.Weight, Waiting: s.Waiting, Running: s.Running, Tokens: s.Work, Bytes: s.Bytes,
		OldestMS: s.Oldest.Milliseconds(), WaitMS: s.Wait.Milliseconds(), Passed: s.Passed, Taken: s.Taken, Gone: s.Removed,
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
			AheadSeconds: t.Ahead, NextDueMS: t.NextDue.Milliseconds(),
		})
	}
	return c
}

// queueMeters are the queues as metrics. Labels are bounded: models by the pools there are, classes and reasons by ours.
type queueMeters struct {
	agent *Agent

	saturation, oldest, refused, evicted, panics *prometheus.Desc
}

func newQueueMeters(a *Agent) *queueMeters {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("spillway_local_"+name, help, labels, nil)
	}
	return &queueMeters{
		agent:      a,
		saturation: desc("queue_saturation_ratio", "1 when the queue is full, or when a class would wait as long as its target.", "model"),
		oldest:     desc("queue_oldest_seconds", "Age of the oldest waiting request.", "model", "class"),
		refused:    desc("queue_refusals_total", "Requests that were not let into the queue, by reason.", "model", "class", "reason"),
		evicted:    desc("queue_evictions_total", "Waiting requests that had to go for others.", "model", "class"),
		panics:     desc("pool_panic", "1 while so few workers take requests that those out for a doubt are used too.", "model"),
	}
}

// Describe lists them.
func (m *queueMeters) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.saturation, m.oldest, m.refused, m.evicted, m.panics} {
		ch <- d
	}
}

// Collect reads them off the floor.
func (m *queueMeters) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for _, q := range m.agent.floor.queues(0, time.Now()) {
		gauge(m.saturation, q.Saturation, q.Model)
		gauge(m.panics, map[bool]float64{true: 1}[q.Panic], q.Model)
		for _, c := range q.Classes {
			gauge(m.oldest, float64(c.OldestMS)/1000, q.Model, c.Class)
			counter(m.evicted, c.Evicted, q.Model, c.Class)
			for why, n := range c.Refused {
				counter(m.refused, n, q.Model, c.Class, why)
			}
		}
	}
}
