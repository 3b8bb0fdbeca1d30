package gpu

import "slices"

// schedule fills one step: decodes first, then prompts already begun, then prompts that wait, first come, first served,
// all out of one budget of tokens. It reports whether there is anything to do.
func (e *Engine) schedule() bool {
	e.load = Load{}
	budget := e.limits.MaxBatchedTokens
	before := e.counters.Preemptions
	budget = e.decodes(budget)
	budget = e.prefills(budget)
	calm := e.counters.Preemptions == before
	if calm {
		e.admit(budget)
	}
	e.measure()
	e.stretch.may = calm && e.load.Prefill == 0 && e.load.Decodes == len(e.running)
	return e.load.Prefill+e.load.Decodes > 0
}

// decodes gives every decoding sequence its one token.
func (e *Engine) decodes(budget int) int {
	for i := 0; i < len(e.running) && budget > 0; i++ {
		s := e.running[i]
		if !s.decoding() {
			continue
		}
		freed, ok := e.reserve(s, 1)
		budget += freed
		if ok {
			s.scheduled = 1
			budget--
		}
	}
	return budget
}

// prefills continues prompts whose first chunk is done.
func (e *Engine) prefills(budget int) int {
	for i := 0; i < len(e.running) && budget > 0; i++ {
		s := e.running[i]
		if s.decoding() {
			continue
		}
		take := min(budget, s.left())
		freed, ok := e.reserve(s, take)
		budget += freed
		if !ok {
			break
		}
		s.scheduled = take
		budget -= take
	}
	return budget
}

// reserve gives the running sequence room for n more tokens, preempting the youngest others where it must. The oldest
// sequence therefore always gets on. It returns the tokens that preempted sequences no longer take from this step.
func (e *Engine) reserve(s *Sequence, n int) (freed int, ok bool) {
	need := blocksFor(s.computed+n) - s.held.blocks()
	for need > e.pool.available() {
		youngest := e.running[len(e.running)-1]
		freed += youngest.scheduled
		if youngest == s && len(e.running) > 1 && !s.decoding() {
			return freed, false // a prompt waits with what it has until older sequences end
		}
		e.preempt(youngest)
		if youngest == s {
			return freed, false
		}
	}
	e.extend(s, need)
	return freed, true
}

// preempt takes a running sequence's blocks and puts it first in the queue; what it had computed is computed again.
func (e *Engine) preempt(s *Sequence) {
	e.running = e.running[:len(e.running)-1]
	e.drop(s)
	s.state, s.scheduled = waiting, 0
	s.preempted++
	e.counters.Preemptions++
	e.waiting = slices.Insert(e.waiting, 0, s)
}

// admit starts waiting prompts while budget, slots and blocks last.
func (e *Engine) admit(budget int) {
	n := 0
	for n < len(e.waiting) && budget > 0 && len(e.running) < e.limits.MaxSeqs {
		s := e.waiting[n]
		x := e.pool.match(&s.held, (s.tokens()-1)/BlockTokens) // the last token must be computed to make the next
		hits := x.blocks + x.host
		take := min(budget, s.tokens()-hits*BlockTokens)
		need := blocksFor(hits*BlockTokens+take) - x.blocks
		if need+x.fresh > e.pool.available() {
			break
		}
		e.enter(s, x, take, need)
		budget -= take
		n++
	}
	e.waiting = slices.Delete(e.waiting, 0, n)
}

// enter lets a sequence run with what the cache has of its text and blocks for the tokens that it takes.
func (e *Engine) enter(s *Sequence, x hit, take, need int) {
	e.pool.attach(&s.held, x.blocks)
	e.extend(s, need)
	e.pool.seal(&s.held, x.blocks+x.host)
	e.load.Loaded += x.host * BlockTokens
	s.computed = (x.blocks + x.host) * BlockTokens
	if !s.started {
		s.started, s.cached = true, s.computed
		e.counters.PrefixQueries += uint64(s.req.PromptTokens)
		e.counters.PrefixHits += uint64(s.computed)
		e.counters.HostHits += uint64(x.host * BlockTokens)
	}
	s.state, s.scheduled = running, take
	e.running = append(e.running, s)
}

func (e *Engine) extend(s *Sequence, need int) {
	if need > 0 { // the caller has seen that there are enough
		e.pool.alloc(need)
		s.held.own += need
	}
}

// measure adds up what the step has to do.
func (e *Engine) measure() {
	var context float64
	for _, s := range e.running {
		switch {
		case s.scheduled == 0:
		case s.decoding():
			e.load.Decodes++
			e.load.DecodeContext += s.tokens()
		default:
			e.load.Prefill += s.scheduled
			context += float64(s.scheduled) * (float64(s.computed) + float64(s.scheduled)/2)
		}
	}
	if e.load.Prefill > 0 {
		e.load.PrefillContext = context / float64(e.load.Prefill)
	}
}
