package local

import (
	"net/url"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/sched"
)

func newPathURL(p string) *url.URL { return &url.URL{Path: p} }

// Status describes the zone as this instance sees it.
func (a *Agent) Status() admin.ZoneStatus {
	return a.buildStatus(false)
}

// buildStatus is Status. With ownOnly it has only the workers that this instance owns, so that a caller of several
// instances gets each worker once.
func (a *Agent) buildStatus(ownOnly bool) admin.ZoneStatus {
	now := time.Now()
	s := a.Summary(now)
	z := admin.ZoneStatus{
		Name: a.cfg.Zone, Instance: a.cfg.Name, Endpoint: a.cfg.Advertise, State: admin.StateFresh, Draining: s.Draining,
		Models: []admin.ModelStatus{}, Workers: []admin.WorkerStatus{},
	}
	var workers []sched.WorkerReport
	a.scheduler.update(func(s *sched.Scheduler) { workers = s.Reports.ListWorkers(now) })
	for i := range workers {
		if w := &workers[i]; !ownOnly || w.OtherOwner == "" {
			one := toWorkerStatus(w, now)
			one.Source = a.discovery.SourceOf(w.Name)
			z.Workers = append(z.Workers, one)
		}
	}
	for i := range s.Models {
		z.Models = append(z.Models, toModelStatus(&s.Models[i]))
	}
	return z
}

// toWorkerStatus returns a worker's status as shown to operators.
func toWorkerStatus(w *sched.WorkerReport, now time.Time) admin.WorkerStatus {
	declared, r := &w.Backend.(*zoneWorker).declared, &w.Reading
	s := admin.WorkerStatus{
		Name: w.Name, URL: declared.URL, GPU: declared.GPU, Engine: w.Backend.EngineName(), State: w.State, Reason: w.Reason,
		LastError: w.Failure.Cause, Attempts: w.Failure.Attempts, Since: w.Failure.Since,
		Running: r.Running, Waiting: r.Waiting, InFlight: w.Load.Running,
		KVTotal: r.KVTotal, KVFree: w.KVFree, Backlog: w.Load.Backlog + w.Load.ForeignBacklog,
		PrefillRate: w.PrefillRate, DecodeRate: w.DecodeRate, KVOvercommit: w.KVOvercommit, Prefix: w.Prefix,
		Models: w.Models, ModelStates: w.NotLoadedState,
	}
	if at := r.LoadReadAt; !at.IsZero() {
		s.ScrapeAgeMS = now.Sub(at).Milliseconds()
	} else if !r.ReadAt.IsZero() {
		s.ScrapeAgeMS = now.Sub(r.ReadAt).Milliseconds()
	}
	return s
}

func toModelStatus(m *capacity.ModelCapacity) admin.ModelStatus {
	wait, _ := m.PredictWait(spec.Standard)
	return admin.ModelStatus{
		Name: m.Name, Ready: m.Ready, Total: m.Total, Running: m.Running, Queued: m.Queued, PrefillRate: m.PrefillRate(),
		DecodeRate: m.DecodeRate(), Backlog: m.Backlog, KVFree: m.KVFree, KVTotal: m.KVTotal,
		WaitSeconds: wait.Seconds(), Headroom: m.Headroom[spec.Standard],
		Warm: m.Warm, Cold: m.Cold,
	}
}

// Summary returns the zone's capacity now.
func (a *Agent) Summary(now time.Time) capacity.Summary {
	var out capacity.Summary
	a.scheduler.update(func(s *sched.Scheduler) { out = s.Reports.BuildSummary(a.path(), now) })
	out.Draining = out.Draining || a.stopping.Load()
	return out
}
