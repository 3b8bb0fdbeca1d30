package sched

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/health"
)

// TestManyWorkersEnterTheViewsTogether: 4,096 workers that are added and listed within two seconds rebuild the views a few
// times, all serve after the next patrol, and one that is removed leaves the view at once.
func TestManyWorkersEnterTheViewsTogether(t *testing.T) {
	const workers = 4096
	now := time.Unix(1e9, 0)
	f := newTestScheduler(nil, health.Config{})
	var ws []*Worker
	rebuilds, last := 0, f.Registry.rebuiltAt
	count := func() {
		if f.Registry.rebuiltAt != last {
			rebuilds, last = rebuilds+1, f.Registry.rebuiltAt
		}
	}
	for i := range workers {
		now = now.Add(100 * time.Microsecond)
		w, ok := f.Registry.AddWorker(WorkerSpec{Name: fmt.Sprintf("w%04d", i), URL: "http://10.0.0.1:1", Weight: 1}, testBackend{}, now)
		if !ok {
			t.Fatalf("no room for worker %d", i)
		}
		ws = append(ws, w)
		if i >= batchedFrom {
			count()
		}
	}
	models := []report.WorkerModel{{ID: "m"}}
	for _, w := range ws {
		now = now.Add(300 * time.Microsecond)
		w.breaker.RecordProbeSuccess(now)
		w.breaker.RecordWarmUp(now)
		f.Registry.SetModels(w, w.modelsVersion, models, ModelListFailure{}, now)
		w.reading.ReadAt = now
		count()
	}
	if rebuilds > 50 {
		t.Errorf("the views were rebuilt %d times for %d workers", rebuilds, workers)
	}
	f.CheckWorkers(now.Add(PatrolInterval))
	if n := f.CountReadyWorkers("m"); n != workers {
		t.Errorf("after a patrol %d workers may be chosen, want %d", n, workers)
	}
	f.Registry.RemoveWorker(ws[7], now)
	if n := f.CountReadyWorkers("m"); n != workers-1 {
		t.Errorf("after one of %d workers was removed %d may be chosen", workers, n)
	}
}
