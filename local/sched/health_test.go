package sched

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/health"
)

// newSuspectScheduler has three workers, of which the first is suspected and under verification.
func newSuspectScheduler(t *testing.T, now time.Time) (*Scheduler, *Worker, WorkerVerification) {
	t.Helper()
	f, ws := newBusyScheduler(t, now)
	w := ws[0]
	w.breaker.EndRequest()
	w.openAttempts, w.lastFailedRequest = 0, SuspectRequest{"m", openai.ShapeChat}
	for range 5 {
		w.breaker.FailAnswer("ann", now)
	}
	q, due := f.Health.BeginVerification(w, now)
	if !due || q.Model != "m" || q.Kind != health.SoftError {
		t.Fatalf("a suspected worker is not verified: %+v", q)
	}
	return f, w, q
}

// TestVerificationOutcomes: what each end of the zone's own request does to the worker.
func TestVerificationOutcomes(t *testing.T) {
	timeout, failed := ProbeError{Cause: "no answer", TimedOut: true}, ProbeError{Cause: "status 500"}
	for _, c := range []struct {
		name    string
		failure ProbeError
		took    time.Duration
		between func(*Worker, time.Time)
		want    health.Verification
		ejected bool
	}{
		{"an answer", ProbeError{}, time.Second, nil, health.Passed, false},
		{"an error answer", failed, time.Second, nil, health.Failed, true},
		{"a lost connection", ProbeError{Cause: "reset"}, time.Second, nil, health.Failed, true},
		{"no answer in time of an idle worker", timeout, VerifyTimeout, nil, health.Failed, true},
		{"no answer in time of a worker at work", timeout, VerifyTimeout, func(w *Worker, _ time.Time) { w.openAttempts++ }, health.Inconclusive, false},
		{"no answer in time of a worker that answered others", timeout, VerifyTimeout, func(w *Worker, now time.Time) { w.deepProbe.RecordToken(now) }, health.Inconclusive, false},
		{"an error answer of a worker at work", failed, time.Second, func(w *Worker, _ time.Time) { w.openAttempts++ }, health.Failed, true},
		{"a process that was stopped", timeout, VerifyTimeout + pauseThreshold + 1, nil, health.Inconclusive, false},
		{"a worker that is gone", failed, time.Second, func(w *Worker, _ time.Time) { w.removed = true }, health.Failed, false},
	} {
		now := time.Unix(1e9, 0)
		f, w, q := newSuspectScheduler(t, now)
		if c.between != nil {
			c.between(w, now.Add(time.Millisecond))
		}
		v, ejected := f.EndVerification(w, q, c.failure, now.Add(c.took))
		if v != c.want || ejected != c.ejected || (w.breaker.State() == health.Open) != c.ejected {
			t.Errorf("%s: %d, ejected %v, it is %s", c.name, v, ejected, w.breaker.State())
		}
	}
}

// TestLateErrorAnswerKeepsTheCauseOfTheEjection: requests that were under way when the worker was ejected end with errors
// too, and did not eject it.
func TestLateErrorAnswerKeepsTheCauseOfTheEjection(t *testing.T) {
	now := time.Unix(1e9, 0)
	f, w, q := newSuspectScheduler(t, now)
	late := &Attempt{Worker: w, group: w.viewSlots[0].group, Request: &Request{}}
	f.recordErrorAnswer(late, 500, nil, now)
	if got := w.ejectionCause.cause; got != "a request was answered with status 500" {
		t.Fatalf("before the ejection the cause is %q", got)
	}
	if _, ejected := f.EndVerification(w, q, ProbeError{Cause: "POST /v1/embeddings: status 500"}, now.Add(time.Second)); !ejected {
		t.Fatal("the worker was not ejected")
	}
	f.recordErrorAnswer(late, 500, nil, now.Add(2*time.Second))
	if got := w.describeCause(); got != ": POST /v1/embeddings: status 500" {
		t.Errorf("after a late error answer the cause is %q", got)
	}
}

// TestUnavailableWorkerIsNotVerified: one that is drained, gone or asleep, or that would have to load the model.
func TestUnavailableWorkerIsNotVerified(t *testing.T) {
	for name, change := range map[string]func(*Worker){
		"drained": func(w *Worker) { w.drained = true },
		"gone":    func(w *Worker) { w.removed = true },
		"asleep":  func(w *Worker) { w.reading.Asleep = true },
		"cold":    func(w *Worker) { w.models[0].State++ },
	} {
		now := time.Unix(1e9, 0)
		f, w, q := newSuspectScheduler(t, now)
		w.breaker.Verified(q.StartedAt, health.Inconclusive, now)
		change(w)
		if _, due := f.Health.BeginVerification(w, now.Add(time.Minute)); due {
			t.Errorf("a worker that is %s is verified", name)
		}
	}
	// One that no longer serves the model of the failed request is asked for another.
	now := time.Unix(1e9, 0)
	f, w, q := newSuspectScheduler(t, now)
	w.breaker.Verified(q.StartedAt, health.Inconclusive, now)
	w.lastFailedRequest.Model = "old"
	if q, due := f.Health.BeginVerification(w, now.Add(time.Minute)); !due || q.Model != "m" {
		t.Errorf("due %v, for model %q", due, q.Model)
	}
}

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
		w.refreshViews(now)
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
