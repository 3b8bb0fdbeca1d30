package local

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

func pathURL(p string) *url.URL { return &url.URL{Path: p} }

// Status describes the zone as this instance sees it.
func (a *Agent) Status() admin.ZoneStatus {
	now := time.Now()
	s := a.Summary(now)
	z := admin.ZoneStatus{
		Name: a.cfg.Zone, Instance: a.cfg.Name, Endpoint: a.cfg.Advertise, State: admin.StateFresh, Draining: s.Draining,
		Models: []admin.ModelStatus{}, Workers: a.floor.workerStatus(now),
	}
	for i := range z.Workers {
		z.Workers[i].Source = a.watch.Source(z.Workers[i].Name)
	}
	for i := range s.Models {
		z.Models = append(z.Models, modelStatus(&s.Models[i]))
	}
	return z
}

// ownStatus is Status with the workers that this instance serves alone: who asks several instances wants each worker once.
func (a *Agent) ownStatus() admin.ZoneStatus {
	z := a.Status()
	f := a.floor
	f.mu.Lock()
	defer f.mu.Unlock()
	z.Workers = slices.DeleteFunc(z.Workers, func(s admin.WorkerStatus) bool {
		w := f.workers[s.Name]
		return w != nil && w.elsewhere != ""
	})
	return z
}

func modelStatus(m *capacity.Model) admin.ModelStatus {
	wait, _ := m.Wait(spec.Standard)
	return admin.ModelStatus{
		Name: m.Name, Ready: m.Ready, Total: m.Total, Running: m.Running, Queued: m.Queued, PrefillRate: m.PrefillRate(),
		DecodeRate: m.DecodeRate(), Backlog: m.Backlog, KVFree: m.KVFree, KVTotal: m.KVTotal,
		WaitSeconds: wait.Seconds(), Headroom: m.Headroom[spec.Standard],
		Warm: m.Warm, Cold: m.Cold,
	}
}

// workerNames lists the workers of the zone, sorted.
func (f *floor) workerNames() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.workers))
}

func (f *floor) workerStatus(now time.Time) []admin.WorkerStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := []admin.WorkerStatus{}
	for _, w := range f.workers {
		r := w.learner.Learned()
		load := f.ledger.Load(w.id, r.PrefillRate, now)
		s := admin.WorkerStatus{
			Name: w.declared.Name, URL: w.declared.URL, GPU: w.declared.GPU, Engine: w.engine.Name(), State: w.state(), Reason: w.down(),
			LastError: w.failing.cause, Attempts: w.failing.attempts, Since: w.failing.since,
			Running: w.reading.Running, Waiting: w.reading.Waiting, InFlight: load.Running,
			KVTotal: w.reading.KVTotal, KVFree: max(0, w.reading.KVTotal-load.HeldKV()), Backlog: load.Backlog + load.ForeignBacklog,
			PrefillRate: r.PrefillRate, DecodeRate: r.DecodeRate(decodeBatch), KVOvercommit: w.overcommit.Factor(now), Prefix: w.prefixStatus(),
		}
		if at := w.reading.LoadAt; !at.IsZero() {
			s.ScrapeAgeMS = now.Sub(at).Milliseconds()
		} else if !w.reading.At.IsZero() {
			s.ScrapeAgeMS = now.Sub(w.reading.At).Milliseconds()
		}
		for _, m := range w.models {
			s.Models = append(s.Models, m.ID)
		}
		s.ModelStates = w.modelStates()
		out = append(out, s)
	}
	slices.SortFunc(out, func(x, y admin.WorkerStatus) int { return strings.Compare(x.Name, y.Name) })
	return out
}

// reasonOf says why a worker takes no requests; empty when it does.
func (f *floor) reasonOf(w *worker) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return w.down()
}
