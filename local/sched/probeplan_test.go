package sched

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/health"
)

// newProbedWorker returns a worker that takes requests and has reported its load.
func newProbedWorker(t *testing.T, f *Scheduler, name string, now time.Time) *Worker {
	t.Helper()
	w, ok := f.Registry.AddWorker(WorkerSpec{Name: name, URL: "http://10.0.0.1:1", Models: []report.WorkerModel{{ID: "m"}}, Weight: 1}, testBackend{}, now)
	if !ok {
		t.Fatal("no room for a worker")
	}
	w.breaker.RecordProbeSuccess(now)
	w.breaker.RecordWarmUp(now)
	w.reading.ReadAt, w.reading.LoadReadAt = now, now
	w.refreshViews(now)
	return w
}

// TestProbesReadOnePage: a worker that emits tokens is asked for its metrics each time; an idle or silent one for its metrics
// and its health in turn; one whose state is in question, or whose metrics cannot be read, for both.
func TestProbesReadOnePage(t *testing.T) {
	now := time.Unix(1e9, 0)
	f := newTestScheduler(nil, health.Config{})
	w := newProbedWorker(t, f, "w", now)
	pass := func(emits bool) (out []ProbePages) {
		for range 4 {
			now = now.Add(time.Second)
			if emits {
				w.breaker.RecordOutput(now)
			}
			p := f.Health.NextProbe(w, now)
			next := w.reading
			next.ReadAt = now
			if p != HealthOnly {
				next.LoadReadAt = now
			}
			f.RecordScrape(w, next, w.modelsVersion, "", now)
			out = append(out, p)
		}
		return out
	}
	expect := func(what string, got []ProbePages, want ...ProbePages) {
		t.Helper()
		for i := range got {
			if got[i] != want[i%len(want)] {
				t.Errorf("%s: the probes read %v, want %v in turn", what, got, want)
				return
			}
		}
	}
	expect("idle", pass(false), HealthOnly, MetricsFirst)
	w.breaker.BeginRequest(now)
	expect("with answers", pass(true), MetricsFirst)
	now = now.Add(2 * lifeSignAge)
	expect("silent with answers", pass(false), HealthOnly, MetricsFirst)
	f.Health.RecordMetricsPage(w, true)
	expect("metrics fail", pass(false), HealthAndMetrics)
	f.Health.RecordMetricsPage(w, false)
	f.RecordScrape(w, w.reading, w.modelsVersion, "GET /health: status 503", now)
	if p := f.Health.NextProbe(w, now); p != HealthAndMetrics {
		t.Errorf("after a failed probe the next reads %v, want both pages", p)
	}
	other := newProbedWorker(t, f, "other", now)
	other.reading.LoadReadAt = time.Time{}
	if p := f.Health.NextProbe(other, now); p != HealthAndMetrics {
		t.Errorf("of a worker that never reported its load, a probe reads %v, want both pages", p)
	}
}

// TestDeadIdleWorkerIsFoundAsSoonAsWithTwoPlainIntervals: whenever an idle worker dies, its second failed probe, which ejects
// it, comes at most two configured intervals (with their jitter) later, and sooner in the mean than with a fixed interval. It is
// probed less often than once per interval meanwhile.
func TestDeadIdleWorkerIsFoundAsSoonAsWithTwoPlainIntervals(t *testing.T) {
	const interval = time.Second
	rng := rand.New(rand.NewPCG(5, 6))
	var worst, sum time.Duration
	const deaths = 300
	for range deaths {
		now := time.Unix(1e9, 0)
		f := newTestScheduler(nil, health.Config{})
		w := newProbedWorker(t, f, "w", now)
		newProbedWorker(t, f, "other", now)
		start := now.Add(20 * time.Second)
		dies := start.Add(time.Duration(rng.Int64N(int64(10 * time.Second))))
		probes := 0
		for w.breaker.State() == health.Closed {
			now = now.Add(time.Duration(f.Health.ProbeInterval(w, now) * (0.9 + 0.2*rng.Float64()) * float64(interval)))
			p := f.Health.NextProbe(w, now)
			cause := ""
			if now.After(dies) {
				cause = "GET /health: connection refused"
			} else if now.After(start) {
				probes++
			}
			next := w.reading
			if p != HealthOnly {
				next.LoadReadAt = now
			}
			f.RecordScrape(w, next, w.modelsVersion, cause, now)
		}
		if most := int(dies.Sub(start)/interval) + 1; probes > most {
			t.Errorf("%d probes in %v of idleness", probes, dies.Sub(start))
		}
		took := now.Sub(dies)
		worst, sum = max(worst, took), sum+took
	}
	if bound := time.Duration(2 * 1.1 * float64(interval)); worst > bound || sum/deaths > 3*interval/2 {
		t.Errorf("a dead worker was found after %v at most and %v in the mean, want at most %v and %v", worst, sum/deaths, bound, 3*interval/2)
	}
}

// TestAcceptanceCountsAreExact: after any history, the kept counts of a model's workers are those of a pass over all.
func TestAcceptanceCountsAreExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 20 {
		now := time.Unix(1e9, 0)
		f := newTestScheduler(nil, health.Config{})
		var ws []*Worker
		for i := range 8 {
			ws = append(ws, newProbedWorker(t, f, string(rune('a'+i)), now))
		}
		for range 300 {
			now = now.Add(time.Duration(rng.IntN(1500)) * time.Millisecond)
			i := rng.IntN(len(ws))
			w := ws[i]
			switch rng.IntN(9) {
			case 0, 1:
				f.RecordScrape(w, w.reading, w.modelsVersion, "", now)
			case 2:
				f.RecordScrape(w, w.reading, w.modelsVersion, "GET /health: connection refused", now)
			case 3:
				next := w.reading
				next.Asleep = !next.Asleep
				f.RecordScrape(w, next, w.modelsVersion, "", now)
			case 4:
				f.RecordDeepProbe(w, []string{"", "no token"}[rng.IntN(2)], now, now)
			case 5:
				f.RecordWarmUp(w, []string{"", "status 500"}[rng.IntN(2)], now)
			case 6:
				f.Health.ejectWorker(w, health.ConnectionRefused, now)
			case 7:
				f.Registry.RemoveWorker(w, now)
				ws[i] = newProbedWorker(t, f, w.Spec.Name, now)
			case 8:
				f.CheckWorkers(now)
			}
			for _, p := range f.groupsByModel() {
				kept, want := p.acceptance, acceptanceCounts{}
				for _, w := range p.workers {
					if !w.removed && !w.drained && w.otherOwner == "" && w.hasModel(p.model) {
						want.total++
						if w.breaker.State().AcceptsRequests() {
							want.taking++
						}
					}
				}
				if kept != want {
					t.Fatalf("%d of %d workers count as taking requests, want %d of %d", kept.taking, kept.total, want.taking, want.total)
				}
			}
		}
	}
}
