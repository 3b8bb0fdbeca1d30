package local

import (
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/queue"
)

// pumpEvery is how often waiting requests are looked at besides the moments when something changed: a worker's backlog
// also melts by the clock.
const pumpEvery = 10 * time.Millisecond

// serve gives the waiting requests of one pool to the workers that have room.
func (f *floor) serve(p *pool, now time.Time) {
	for p.queue.Len() > 0 {
		var at *attempt
		var refusal *openai.Error
		it := p.queue.Next(now, func(it *queueItem) (answer queue.Answer) {
			if at, answer = f.try(it.Value, p, now); at != nil {
				it.Cost = at.cost()
			} else if refusal = f.forlorn(it.Value, p); refusal != nil {
				return queue.Placed
			}
			return answer
		})
		if it == nil {
			return
		}
		if at == nil {
			p.queue.Settle(it, 0)
		}
		it.Value.tell(verdict{attempt: at, refusal: refusal})
	}
}

func (f *floor) serveAll(now time.Time) (waiting bool) {
	for _, p := range f.models() {
		f.serve(p, now)
		if p.queue.Len() > 0 && f.hopeless(p) {
			if loads, refusal := f.expecting(p, now); !loads {
				f.refuseAll(p, refusal, now)
			}
		}
		waiting = waiting || p.queue.Len() > 0
	}
	return waiting
}

// hopeless says that nobody serves the model any more.
func (f *floor) hopeless(p *pool) bool {
	for i := range p.view.Workers {
		if p.view.Workers[i].Down == "" {
			return false
		}
	}
	return true
}

// refuseAll empties a queue whose workers are all gone, so that the tier above can try elsewhere at once.
func (f *floor) refuseAll(p *pool, refusal *openai.Error, now time.Time) {
	for p.queue.Len() > 0 {
		it := p.queue.Next(now, func(*queueItem) queue.Answer { return queue.Placed })
		p.queue.Settle(it, 0)
		it.Value.tell(verdict{refusal: refusal})
	}
}

// poke wakes the pump.
func (f *floor) poke() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// pump serves while somebody waits and sleeps otherwise.
func (a *Agent) pump() {
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-a.floor.kick:
		}
		for a.pumpOnce() {
			select {
			case <-a.ctx.Done():
				return
			case <-time.After(pumpEvery):
			}
		}
	}
}

func (a *Agent) pumpOnce() (waiting bool) {
	a.floor.mu.Lock()
	defer a.floor.mu.Unlock()
	return a.floor.serveAll(time.Now())
}

func (a *Agent) wake() {
	a.floor.poke()
	if a.uplink != nil {
		a.uplink.Wake()
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
