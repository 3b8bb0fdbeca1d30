package local

import (
	"net/http"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/discover"
)

// TestARequestOfAPoolIsNotOvertakenForEver: the pool's only worker is always full of small requests, of which a new one comes
// whenever one ends, and the workers of no pool are empty. The large request has its room after at most maxPassed of them.
func TestARequestOfAPoolIsNotOvertakenForEver(t *testing.T) {
	now := time.Unix(1e9, 0)
	gold := map[string]string{"tier": "gold"}
	f := newFloor(Config{Name: "a", Region: "r", Zone: "z", Spec: &spec.Spec{Pools: []spec.Pool{{Name: "gold", Labels: gold, Tenants: []string{"acme"}}}}})
	for _, d := range []discover.Worker{{Name: "gold", Labels: gold}, {Name: "shared"}} {
		d.URL, d.Models, d.Weight, d.GPU = "http://10.0.0.1:1", []string{"m"}, 1, "H100"
		w := newTestWorker(t, d)
		if !f.add(w, now) {
			t.Fatal("no room for a worker")
		}
		w.breaker.ProbeOK(now)
		w.breaker.Warmed(now)
		w.reading.At, w.reading.KVTotal = now, 10_000
		w.refresh(now)
	}
	now = now.Add(time.Hour) // past the slow start
	ask := func(tokens int64) *visit {
		v := &visit{r: &http.Request{URL: pathURL(openai.PathEmbeddings), Header: http.Header{}}, shape: openai.ShapeEmbeddings, model: "m", estimate: tokens, class: spec.Batch, arrived: now, excluded: [2]int32{-1, -1}}
		v.hop.Tenant = "acme"
		return v
	}
	var running []*attempt
	for range 9 {
		at, refusal, waits := f.arrive(ask(1000), now)
		if at == nil {
			t.Fatalf("a small request found no room: %v, waits %v", refusal, waits)
		}
		f.ledger.FirstByte(&at.entry, now)
		running = append(running, at)
	}
	large := ask(8000)
	if at, refusal, _ := f.arrive(large, now); at != nil || refusal != nil {
		t.Fatalf("the large request did not wait: %v", refusal)
	}
	var waiting []*visit
	for step := range 10 * maxPassed {
		now = now.Add(time.Millisecond)
		v := ask(1000)
		if at, refusal, _ := f.arrive(v, now); at != nil {
			t.Fatal("it passed the queue")
		} else if refusal != nil {
			t.Fatal(refusal)
		}
		waiting = append(waiting, v)
		if len(running) > 0 {
			f.ledger.Finish(&running[0].entry, now)
			f.mu.Lock()
			f.pools["m"].queue.Settle(&running[0].visit.item, 0)
			f.serve(f.pools["m"], now)
			f.mu.Unlock()
			running = running[1:]
		}
		select {
		case d := <-large.ready:
			if d.attempt == nil || d.attempt.worker.declared.Name != "gold" {
				t.Fatalf("the large request came to %+v", d.refusal)
			}
			t.Logf("after %d requests of its own pool", step+1)
			return
		default:
		}
		for i := 0; i < len(waiting); i++ {
			select {
			case d := <-waiting[i].ready:
				f.ledger.FirstByte(&d.attempt.entry, now)
				running = append(running, d.attempt)
				waiting = append(waiting[:i], waiting[i+1:]...)
				i--
			default:
			}
		}
	}
	t.Error("the large request was overtaken for ever")
}
