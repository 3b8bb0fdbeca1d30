package local

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/health"
)

// cardsEvery is how many scrapes there are to one reading of an exporter of GPU metrics, which samples its driver seldom.
const cardsEvery = 5

// watchCards reads what the exporter says of a worker's GPUs until ctx ends. An exporter that does not answer says
// nothing of the worker.
func (a *Agent) watchCards(ctx context.Context, w *worker, e *engine.Exporter) {
	var last engine.GPUs
	failing := false
	for {
		probe, cancel := context.WithTimeout(ctx, scrapeTimeout)
		next, err := e.Read(probe, last)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			a.log.Warn("the exporter of a worker's GPUs cannot be read", telemetry.KeyWorker, w.declared.Name, telemetry.Err(err))
		}
		if failing = err != nil; !failing {
			last = next
			a.bookCards(w, next)
		}
		t := time.NewTimer(time.Duration(cardsEvery * float64(a.cfg.ScrapeInterval) * (0.9 + 0.2*rand.Float64())))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// bookCards takes in what an exporter said, and logs when that put the worker in quarantine.
func (a *Agent) bookCards(w *worker, g engine.GPUs) {
	f := a.floor
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.gone {
		return
	}
	list := make([]health.Card, 0, len(g.Cards))
	for _, c := range g.Cards {
		list = append(list, health.Card{XID: c.XID, RemapFailed: c.RemapFailed, Used: c.Used, Free: c.Free})
	}
	now := time.Now()
	before := w.state()
	w.cards = g
	w.breaker.Exported(list, now)
	w.refresh(now)
	if after := w.state(); after != before {
		a.log.Warn("worker changed state by what its GPUs say", telemetry.KeyWorker, w.declared.Name, "from", before, "to", after)
	}
}
