package gpu

import "slices"

// scheduleStep fills one step: decodes first, then started prompts, then waiting prompts, first come, first served,
// from one budget of tokens. It reports whether there is work.
func (e *Engine) scheduleStep() bool {
	e.load = StepLoad{}
	budget := e.limits.MaxBatchedTokens
	before := e.counters.Preemptions
	budget = e.scheduleDecodes(budget)
	budget = e.schedulePrefills(budget)
	noPreemption := e.counters.Preemptions == before
	if noPreemption {
		e.admitWaiting(budget)
	}
	e.measureLoad()
	e.group.allowed = noPreemption && e.load.PrefillTokens == 0 && e.load.Decodes == len(e.running)
	return e.load.PrefillTokens+e.load.Decodes > 0
}

// scheduleDecodes schedules one token of every decoding sequence.
func (e *Engine) scheduleDecodes(budget int) int {
	for i := 0; i < len(e.running) && budget > 0; i++ {
		s := e.running[i]
		if !s.isDecoding() {
			continue
		}
		freed, ok := e.reserveBlocks(s, 1)
		budget += freed
		if ok {
			s.scheduledTokens = 1
			budget--
		}
	}
	return budget
}

// schedulePrefills continues prompts whose first chunk is done.
func (e *Engine) schedulePrefills(budget int) int {
	for i := 0; i < len(e.running) && budget > 0; i++ {
		s := e.running[i]
		if s.isDecoding() {
			continue
		}
		take := min(budget, s.uncomputedTokens())
		freed, ok := e.reserveBlocks(s, take)
		budget += freed
		if !ok {
			break
		}
		s.scheduledTokens = take
		budget -= take
	}
	return budget
}

// reserveBlocks reserves room for n more tokens of a running sequence, preempting the youngest others if needed, so
// that the oldest sequence always progresses. It returns the tokens that preempted sequences no longer take from this
// step.
func (e *Engine) reserveBlocks(s *Sequence, n int) (freed int, ok bool) {
	need := blocksFor(s.computedTokens+n) - s.table.countBlocks()
	for need > e.cache.availableBlocks() {
		youngest := e.running[len(e.running)-1]
		freed += youngest.scheduledTokens
		if youngest == s && len(e.running) > 1 && !s.isDecoding() {
			return freed, false // the prompt waits with its blocks until older sequences end
		}
		e.preemptSequence(youngest)
		if youngest == s {
			return freed, false
		}
	}
	e.extendBlocks(s, need)
	return freed, true
}

// preemptSequence releases a running sequence's blocks and moves it to the front of the queue; its computation is
// repeated.
func (e *Engine) preemptSequence(s *Sequence) {
	e.running = e.running[:len(e.running)-1]
	e.releaseBlocks(s)
	s.state, s.scheduledTokens = stateWaiting, 0
	s.preemptions++
	e.counters.Preemptions++
	e.waiting = slices.Insert(e.waiting, 0, s)
}

// admitWaiting starts waiting prompts while budget, slots and blocks last.
func (e *Engine) admitWaiting(budget int) {
	n := 0
	for n < len(e.waiting) && budget > 0 && len(e.running) < e.limits.MaxSeqs {
		s := e.waiting[n]
		x := e.cache.matchPrefix(&s.table, (s.contextTokens()-1)/BlockTokens) // the last token must be computed to generate the next
		hits := x.gpuBlocks + x.hostBlocks
		take := min(budget, s.contextTokens()-hits*BlockTokens)
		need := blocksFor(hits*BlockTokens+take) - x.gpuBlocks
		if need+x.unreferenced > e.cache.availableBlocks() {
			break
		}
		e.admitSequence(s, x, take, need)
		budget -= take
		n++
	}
	e.waiting = slices.Delete(e.waiting, 0, n)
}

// admitSequence starts a sequence with the cached part of its text and blocks for its tokens.
func (e *Engine) admitSequence(s *Sequence, x cacheMatch, take, need int) {
	e.cache.attachBlocks(&s.table, x.gpuBlocks)
	e.extendBlocks(s, need)
	e.cache.sealBlocks(&s.table, x.gpuBlocks+x.hostBlocks)
	e.load.HostTokens += x.hostBlocks * BlockTokens
	s.computedTokens = (x.gpuBlocks + x.hostBlocks) * BlockTokens
	if !s.started {
		s.started, s.cachedTokens = true, s.computedTokens
		e.counters.PrefixQueries += uint64(s.request.PromptTokens)
		e.counters.PrefixHits += uint64(s.computedTokens)
		e.counters.HostHits += uint64(x.hostBlocks * BlockTokens)
	}
	s.state, s.scheduledTokens = stateRunning, take
	e.running = append(e.running, s)
}

func (e *Engine) extendBlocks(s *Sequence, need int) {
	if need > 0 { // the caller has checked that there are enough
		e.cache.allocBlocks(need)
		s.table.ownBlocks += need
	}
}

// measureLoad adds up the work of the step.
func (e *Engine) measureLoad() {
	var context float64
	for _, s := range e.running {
		switch {
		case s.scheduledTokens == 0:
		case s.isDecoding():
			e.load.Decodes++
			e.load.DecodeContext += s.contextTokens()
		default:
			e.load.PrefillTokens += s.scheduledTokens
			context += float64(s.scheduledTokens) * (float64(s.computedTokens) + float64(s.scheduledTokens)/2)
		}
	}
	if e.load.PrefillTokens > 0 {
		e.load.PrefillContext = context / float64(e.load.PrefillTokens)
	}
}
