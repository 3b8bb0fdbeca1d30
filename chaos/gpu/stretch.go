package gpu

import (
	"sort"
	"time"
)

// mostStretched bounds the steps of one stretch.
const mostStretched = 512

// stretch is steps that are taken together: all that runs decodes, and nothing can be admitted, end or be preempted
// before the last of them ends.
type stretch struct {
	may    bool            // nothing stands against one
	ends   []time.Duration // of its steps, from its begin on; reused
	booked int             // steps whose tokens are made
}

// plan decides how many steps are taken together and returns how long they take.
func (e *Engine) plan() time.Duration {
	x := &e.stretch
	x.ends, x.booked = x.ends[:0], 0
	steps := 1
	if e.fast && x.may && e.pool.journal == nil {
		steps = e.reach()
	}
	computed, sequences := e.profile.fixed(&e.load)
	context := e.load.DecodeContext
	var end time.Duration
	for i := range steps {
		d := float64(e.profile.with(computed, sequences, context))
		if i == 0 && e.load.Loaded > 0 { // while the step computes; only the first of a stretch loads
			d = max(d, float64(e.load.Loaded*e.profile.KVBytes)/(e.hostGBps*float64(e.profile.TP)))
		}
		end += time.Duration(e.noise.step(e.steps+uint64(i), d) * e.slowdown)
		x.ends = append(x.ends, end)
		context += e.load.Decodes
	}
	return end
}

// reach is how many steps can be taken together at least: until the first sequence ends or the cache is full.
func (e *Engine) reach() int {
	steps := mostStretched
	for _, s := range e.running {
		steps = min(steps, s.req.OutputTokens-s.generated)
	}
	each := e.pool.available() / len(e.running) // blocks that every sequence may take more
	return max(1, min(steps, (each-1)*BlockTokens))
}

// cut ends a stretch with the first of its steps that ends at or after this time.
func (e *Engine) cut(at time.Time) {
	x := &e.stretch
	if !e.stepping || len(x.ends) < 2 {
		return
	}
	span := at.Sub(e.begin)
	i := x.booked + sort.Search(len(x.ends)-x.booked, func(i int) bool { return x.ends[x.booked+i] >= span })
	if i+1 < len(x.ends) {
		x.ends = x.ends[:i+1]
		e.end = e.begin.Add(x.ends[i])
	}
}

// Settle books the steps of a stretch that have ended by now, so that Gauges and Generated tell of them.
func (e *Engine) Settle(now time.Time) {
	e.heard(now)
	if !e.stepping {
		return
	}
	x := &e.stretch
	span := now.Sub(e.begin)
	n := x.booked
	for n < len(x.ends)-1 && x.ends[n] <= span {
		n++
	}
	e.book(n - x.booked)
}

// settleAll books all steps of the stretch but the last.
func (e *Engine) settleAll() { e.book(len(e.stretch.ends) - 1 - e.stretch.booked) }

// book makes so many tokens of every sequence and gives each room for the next.
func (e *Engine) book(steps int) {
	if steps <= 0 {
		return
	}
	e.tell(e.stretch.booked, e.stretch.booked+steps)
	e.stretch.booked += steps
	e.steps += uint64(steps)
	e.counters.Steps += uint64(steps)
	for _, s := range e.running {
		s.computed += steps
		s.generated += steps
		e.counters.Generated += uint64(steps)
		e.extend(s, blocksFor(s.computed+1)-s.held.blocks())
	}
}

// tell tells how long some steps of the stretch took.
func (e *Engine) tell(from, to int) {
	if e.onStep == nil || e.load.Decodes == 0 {
		return
	}
	for i := max(from, 0); i < to; i++ {
		took := e.stretch.ends[i]
		if i > 0 {
			took -= e.stretch.ends[i-1]
		}
		e.onStep(took, e.load.Decodes)
	}
}
