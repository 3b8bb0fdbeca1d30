package local

import (
	"time"

	"github.com/spillway-lb/spillway/local/pick"
)

// fade lets what is believed against the pool's silent workers fade towards what the others take. A worker of several pools
// is compared in the first, and one that another instance serves is not silent. Where nobody answers there is nothing to
// compare with, and nobody is preferred.
func (p *pool) fade(now time.Time) {
	var prefill, step []float64
	for _, w := range p.workers {
		if a, b, ok := w.learner.Pace(); ok {
			prefill, step = append(prefill, a), append(step, b)
		}
	}
	a, b := pick.Median(prefill), pick.Median(step)
	p.gather(now)
	p.spread(now)
	for _, w := range p.workers {
		if len(w.seats) == 0 || w.seats[0].pool != p {
			continue
		}
		if w.elsewhere == "" {
			w.learner.Fade(a, b, now)
		}
		w.refresh(now)
	}
}

// gather compares the pool's workers with each other, so that equal ones count as equal.
func (p *pool) gather(now time.Time) {
	list := make([]*pick.Learner, 0, len(p.workers))
	for _, w := range p.workers {
		if len(w.seats) > 0 && w.seats[0].pool == p {
			list = append(list, w.learner)
		}
	}
	pick.Gather(list, now)
}

// spread observes what the pool's workers are sent, and reckons what goes anywhere to those that are up.
func (p *pool) spread(now time.Time) {
	up := make([]*pick.Flow, 0, len(p.workers))
	for _, w := range p.workers {
		if len(w.seats) == 0 || w.seats[0].pool != p {
			continue
		}
		w.flow.Observe(p.view.Ledger.Sent(w.id), w.learner.Rates().PrefillRate, now)
		if w.down() == "" {
			up = append(up, &w.flow)
		}
	}
	pick.Spread(up)
}

// trials is how many requests at once the worker may have: one while it is on trial, and one while it is given the benefit
// of a doubt, so that a worker that is slow after all is not flooded.
func (w *worker) trials() int32 {
	if n := w.breaker.Trials(); n > 0 {
		return int32(n)
	}
	if w.learner.Doubted() {
		return 1
	}
	return 0
}
