package sched

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/health"
)

// TestPessimisticEstimateOfAnIdleWorkerDecays: a worker that was slow and gets no request is estimated as fast as its
// peers after two minutes. It gets one request at a time until it has answered. Without a measurable answer the
// probation ends by itself.
func TestPessimisticEstimateOfAnIdleWorkerDecays(t *testing.T) {
	now, f, ws, usual, view := newSlowWorkerZone(t)
	for range 480 { // two minutes
		now = now.Add(PatrolInterval)
		ws[1].learner.LearnFirstToken(1000, usual)
		ws[2].learner.LearnFirstToken(1000, usual)
		f.CheckWorkers(now)
	}
	if s, n := view(); s > 1.1 || n != 1 {
		t.Errorf("after two idle minutes it is estimated at %.2f of its prior, with %d at once", s, n)
	}
	for range 8 * 240 { // eight minutes, as with answers that are not streams and teach nothing
		now = now.Add(PatrolInterval)
		ws[1].learner.LearnFirstToken(1000, usual)
		f.CheckWorkers(now)
		if _, n := view(); n == 0 {
			break
		}
	}
	if s, n := view(); s > 1.1 || n != 0 {
		t.Errorf("minutes later it is estimated at %.2f of its prior, with %d at once", s, n)
	}
}

// TestSlowAnswerRestoresPessimisticEstimate: one answer as slow as before is enough.
func TestSlowAnswerRestoresPessimisticEstimate(t *testing.T) {
	now, f, ws, usual, view := newSlowWorkerZone(t)
	for range 480 {
		now = now.Add(PatrolInterval)
		ws[1].learner.LearnFirstToken(1000, usual)
		f.CheckWorkers(now)
	}
	ws[0].learner.LearnFirstToken(1000, 4*usual)
	ws[0].refreshViews(now)
	if s, n := view(); s < 3 || n != 0 {
		t.Errorf("one slow answer later it is estimated at %.2f of its prior, with %d at once", s, n)
	}
}

// newSlowWorkerZone returns a zone of three workers, the first of which has learned rates of four times its prior.
func newSlowWorkerZone(t *testing.T) (now time.Time, f *Scheduler, ws []*Worker, usual float64, view func() (float64, int32)) {
	t.Helper()
	now = time.Unix(1e9, 0)
	f = newTestScheduler(nil, health.Config{})
	for _, name := range []string{"w1", "w2", "w3"} {
		w, ok := f.Registry.AddWorker(WorkerSpec{Name: name, URL: "http://10.0.0.1:1", Models: []report.WorkerModel{{ID: "m"}}, Weight: 1, GPU: "L4"}, testBackend{}, now)
		if !ok {
			t.Fatal("no room for a worker")
		}
		ws = append(ws, w)
	}
	prior := ws[0].prior.Rates
	usual = prior.PrefillBase + 1000/prior.PrefillRate
	for range 50 {
		ws[0].learner.LearnFirstToken(1000, 4*usual)
	}
	view = func() (seconds float64, trials int32) {
		for _, v := range f.groups["m"].view.Workers {
			if v.Name == "w1" {
				return (v.Rates.PrefillBase + 1000/v.Rates.PrefillRate) / usual, v.MaxTrials
			}
		}
		return 0, 0
	}
	ws[0].refreshViews(now)
	if s, n := view(); s < 3 || n != 0 {
		t.Fatalf("it is estimated at %.2f of its prior, with %d at once", s, n)
	}
	return now, f, ws, usual, view
}
