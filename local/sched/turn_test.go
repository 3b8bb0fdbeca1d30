package sched

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/health"
)

// TestPoolRequestIsOvertakenAtMostMaxOvertakesTimes: the pool's only worker is always full of small requests, of which a new one comes
// whenever one ends, and the workers of no pool are empty. The large request has its room after at most maxOvertakes of them.
func TestPoolRequestIsOvertakenAtMostMaxOvertakesTimes(t *testing.T) {
	now := time.Unix(1e9, 0)
	gold := map[string]string{"tier": "gold"}
	f := newTestScheduler(&spec.Spec{Pools: []spec.WorkerPool{{Name: "gold", Labels: gold, Tenants: []string{"acme"}}}}, health.Config{})
	for _, d := range []WorkerSpec{{Name: "gold", Labels: gold}, {Name: "shared"}} {
		d.URL, d.Models, d.Weight, d.GPU = "http://10.0.0.1:1", []report.WorkerModel{{ID: "m"}}, 1, "H100"
		w, ok := f.Registry.AddWorker(d, testBackend{}, now)
		if !ok {
			t.Fatal("no room for a worker")
		}
		w.breaker.RecordProbeSuccess(now)
		w.breaker.RecordWarmUp(now)
		w.reading.ReadAt, w.reading.KVTotal = now, 10_000
		w.refreshViews(now)
	}
	now = now.Add(time.Hour) // past the slow start
	ask := func(tokens int64) *Request {
		v := &Request{PathShape: openai.ShapeEmbeddings, Model: "m", EstimatedTokens: tokens, Class: spec.Batch, ArrivedAt: now, ExcludedWorkers: [2]int32{-1, -1}}
		v.Tenant = "acme"
		return v
	}
	var running []*Attempt
	for range 9 {
		at, refusal, waits := f.Admission.AdmitRequest(ask(1000), now)
		if at == nil {
			t.Fatalf("a small request found no room: %v, waits %v", refusal, waits)
		}
		f.ledger.RecordFirstByte(&at.ledgerEntry, now)
		running = append(running, at)
	}
	large := ask(8000)
	if at, refusal, _ := f.Admission.AdmitRequest(large, now); at != nil || refusal != nil {
		t.Fatalf("the large request did not wait: %v", refusal)
	}
	for step := range 10 * maxOvertakes {
		now = now.Add(time.Millisecond)
		v := ask(1000)
		if at, refusal, _ := f.Admission.AdmitRequest(v, now); at != nil {
			t.Fatal("it passed the queue")
		} else if refusal != nil {
			t.Fatal(refusal)
		}
		if len(running) > 0 {
			f.ledger.FinishRequest(&running[0].ledgerEntry, now)
			f.groups["m"].queue.SettleItem(&running[0].Request.QueueItem, 0)
			f.Admission.serveQueue(f.groups["m"], now)
			running = running[1:]
		}
		for _, v := range f.Admission.TakeSettled() {
			at := v.WaitResult.Attempt
			if v == large {
				if at == nil || at.Worker.Spec.Name != "gold" {
					t.Fatalf("the large request came to %+v", v.WaitResult.Refusal)
				}
				t.Logf("after %d requests of its own pool", step+1)
				return
			}
			f.ledger.RecordFirstByte(&at.ledgerEntry, now)
			running = append(running, at)
		}
	}
	t.Error("the large request was overtaken for ever")
}
