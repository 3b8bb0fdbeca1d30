package sched

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/health"
)

// newBusyScheduler has three workers that hold an answer each, which they are emitting.
func newBusyScheduler(t *testing.T, now time.Time) (*Scheduler, []*Worker) {
	t.Helper()
	f := newTestScheduler(nil, health.Config{Stall: 10 * time.Second})
	var ws []*Worker
	for _, name := range []string{"w1", "w2", "w3"} {
		w, ok := f.Registry.AddWorker(WorkerSpec{Name: name, URL: "http://10.0.0.1:1", Models: []report.WorkerModel{{ID: "m"}}, Weight: 1}, testBackend{}, now)
		if !ok {
			t.Fatal("no room for a worker")
		}
		w.breaker.RecordProbeSuccess(now)
		w.breaker.RecordWarmUp(now)
		w.breaker.BeginRequest(now)
		w.breaker.RecordOutput(now)
		w.openAttempts++
		w.modelSlots["m"].usedAt = now
		ws = append(ws, w)
	}
	return f, ws
}

// TestStoppedProcessEjectsNoWorker: a process that was stopped for longer than the stall, or for an hour, finds every worker
// silent for so long. None is taken out for that, whether the patrol or a scrape comes first; one that stays silent while
// this process runs is.
func TestStoppedProcessEjectsNoWorker(t *testing.T) {
	for _, stop := range []time.Duration{3 * time.Second, 11 * time.Second, time.Hour} {
		for _, scrapeFirst := range []bool{false, true} {
			now := time.Unix(1e9, 0)
			f, ws := newBusyScheduler(t, now)
			for range 8 {
				now = now.Add(PatrolInterval)
				if out, stood := f.CheckWorkers(now); len(out) > 0 || stood > 0 {
					t.Fatalf("a healthy zone lost %v, stood %v", out, stood)
				}
			}
			now = now.Add(stop)
			if scrapeFirst {
				if _, after := f.RecordScrape(ws[0], ws[0].reading, ws[0].modelsVersion, "", now); after != "ready" {
					t.Errorf("a scrape after a stop of %v left the worker %s", stop, after)
				}
			}
			out, stood := f.CheckWorkers(now)
			if len(out) > 0 || stood < stop {
				t.Errorf("a stop of %v (seen as %v) took out %v", stop, stood, out)
			}
			if idle := now.Sub(ws[1].modelSlots["m"].usedAt); idle > 3*time.Second {
				t.Errorf("a stop of %v made a model idle for %v", stop, idle)
			}
			for range 60 { // 15 s: the first two go on, the third does not
				now = now.Add(PatrolInterval)
				ws[0].breaker.RecordOutput(now)
				ws[1].breaker.RecordOutput(now)
				more, _ := f.CheckWorkers(now)
				out = append(out, more...)
			}
			if len(out) != 1 || out[0] != "w3" {
				t.Errorf("after a stop of %v the stalled were %v, want w3", stop, out)
			}
		}
	}
}

// TestLateTicksAreNotAPause: ticks that come late by a second are no stop.
func TestLateTicksAreNotAPause(t *testing.T) {
	now := time.Unix(1e9, 0)
	f, _ := newBusyScheduler(t, now)
	var out []string
	for range 16 {
		now = now.Add(time.Second)
		more, stood := f.CheckWorkers(now)
		if out = append(out, more...); stood > 0 {
			t.Errorf("a tick a second late counts as a stop of %v", stood)
		}
	}
	if len(out) != 1 { // max_ejected is half, and their probes pass
		t.Errorf("of three silent workers %v were taken out", out)
	}
	const limit = 2 * time.Second
	if began := now; EndedByPause(began, began.Add(limit+time.Second), limit) || !EndedByPause(began, began.Add(time.Minute), limit) {
		t.Error("a probe's own time limit counts as a stop, or a stop does not")
	}
}
