package sched

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/health"
)

// newDestinationScheduler returns a zone with ready workers of one model at the addresses.
func newDestinationScheduler(t *testing.T, now time.Time, addresses ...string) *Scheduler {
	t.Helper()
	f := newTestScheduler(&spec.Spec{}, health.Config{})
	for _, at := range addresses {
		addReadyWorker(t, f, at, at, now)
	}
	return f
}

func addReadyWorker(t *testing.T, f *Scheduler, name, at string, now time.Time) *Worker {
	t.Helper()
	d := WorkerSpec{Name: name, URL: "http://" + at, Address: at, Models: []report.WorkerModel{{ID: "m"}}, Weight: 1, GPU: "H100"}
	w, ok := f.Registry.AddWorker(d, testBackend{}, now)
	if !ok {
		t.Fatal("no room for a worker")
	}
	w.breaker.RecordProbeSuccess(now)
	w.breaker.RecordWarmUp(now)
	w.reading.ReadAt, w.reading.KVTotal = now, 1000
	w.refreshViews(now)
	return w
}

func newLimitedRequest(tokens int64, now time.Time, subset ...string) *Request {
	v := &Request{PathShape: openai.ShapeEmbeddings, Model: "m", EstimatedTokens: tokens, ArrivedAt: now, ExcludedWorkers: [2]int32{-1, -1}, Destinations: &DestinationLimit{}}
	if len(subset) > 0 {
		v.Destinations.Subset = map[string]struct{}{}
		for _, at := range subset {
			v.Destinations.Subset[at] = struct{}{}
		}
	}
	return v
}

// TestQueuedSubsetIsResolvedAtPlacement: while a request waits for the only worker of its subset, that worker leaves and another
// takes its ledger slot. The request must not be sent to that one.
func TestQueuedSubsetIsResolvedAtPlacement(t *testing.T) {
	now := time.Unix(1e9, 0)
	f := newDestinationScheduler(t, now, "10.0.0.1:1", "10.0.0.2:1")
	now = now.Add(time.Hour)
	first := newLimitedRequest(900, now, "10.0.0.1:1")
	at, _, _ := f.Admission.AdmitRequest(first, now)
	if at == nil || at.Worker.Spec.Address != "10.0.0.1:1" {
		t.Fatalf("the first request went to %+v", at)
	}
	waiting := newLimitedRequest(900, now, "10.0.0.1:1")
	if got, refusal, waits := f.Admission.AdmitRequest(waiting, now); !waits {
		t.Fatalf("the second request does not wait: %v %v", got, refusal)
	}
	other := newLimitedRequest(900, now)
	if got, refusal, _ := f.Admission.AdmitRequest(other, now); got == nil || got.Worker.Spec.Address != "10.0.0.2:1" {
		settled := f.Admission.TakeSettled()
		if len(settled) != 1 || settled[0] != other || other.WaitResult.Attempt == nil || other.WaitResult.Attempt.Worker.Spec.Address != "10.0.0.2:1" {
			t.Fatalf("a request without a subset waits behind one with a subset: %v %v", got, refusal)
		}
	}
	left := at.Worker
	f.Registry.RemoveWorker(left, now)
	f.FinishAttempt(at, &AttemptOutcome{Status: 200}, now)
	if w := addReadyWorker(t, f, "late", "10.0.0.3:1", now); w.ledgerID != left.ledgerID {
		t.Skipf("the slot %d was not used again, but %d", left.ledgerID, w.ledgerID)
	}
	now = now.Add(time.Second)
	f.Admission.ServeAllQueues(now)
	if a := waiting.WaitResult.Attempt; a != nil {
		t.Errorf("the request was sent to %s, outside its subset", a.Worker.Spec.Address)
	}
	if e := waiting.WaitResult.Refusal; e == nil || e.Status != 503 {
		t.Errorf("the request whose subset has left was not refused: %v", e)
	}
}

// TestWorkersWithoutAddressAreNoDestinations: a proxy cannot send to them, this tier can.
func TestWorkersWithoutAddressAreNoDestinations(t *testing.T) {
	now := time.Unix(1e9, 0)
	f := newTestScheduler(&spec.Spec{}, health.Config{})
	addReadyWorker(t, f, "named", "", now)
	now = now.Add(time.Hour)
	v := newLimitedRequest(10, now)
	if at, e, _ := f.Admission.AdmitRequest(v, now); at != nil || e == nil || e.Status != 503 {
		t.Errorf("%v %v", at, e)
	}
	v = newLimitedRequest(10, now)
	v.Destinations = nil
	if at, e, _ := f.Admission.AdmitRequest(v, now); at == nil {
		t.Error(e)
	}
}

// TestFallbacksAreOtherWorkers of the subset, and the ledger follows the one that served.
func TestFallbacksAreOtherWorkers(t *testing.T) {
	now := time.Unix(1e9, 0)
	f := newDestinationScheduler(t, now, "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1")
	now = now.Add(time.Hour)
	v := newLimitedRequest(10, now, "10.0.0.1:1", "10.0.0.3:1")
	at, e, _ := f.Admission.AdmitRequest(v, now)
	if at == nil {
		t.Fatal(e)
	}
	want := "10.0.0.1:1"
	if at.Worker.Spec.Address == want {
		want = "10.0.0.3:1"
	}
	got := f.Admission.ListFallbacks(at, 5, now)
	if len(got) != 1 || got[0] != want {
		t.Fatalf("fallbacks of %s: %v", at.Worker.Spec.Address, got)
	}
	second := f.Admission.DispatchTo(v, want, now)
	f.FinishAttempt(at, &AttemptOutcome{LostRace: true, Failed: true}, now)
	if second == nil || second.Worker.openAttempts != 1 || at.Worker.openAttempts != 0 {
		t.Fatalf("the ledger does not follow: %+v", second)
	}
	f.FinishAttempt(second, &AttemptOutcome{Status: 200}, now)
	if f.Admission.DispatchTo(v, "10.9.9.9:1", now) != nil {
		t.Error("a request was entered for an unknown address")
	}
	for _, w := range f.WorkersByName() {
		if a := f.ledger.TotalsOf(w.ledgerID); w.openAttempts != 0 || a.Sequences() != 0 {
			t.Errorf("%s still has %d attempts, %d sequences", w.Spec.Name, w.openAttempts, a.Sequences())
		}
	}
}
