package gpu

import (
	"sort"
	"time"
)

// maxGroupedSteps bounds the steps of one group.
const maxGroupedSteps = 512

// stepGroup is a group of steps that are taken together: all running sequences decode, and none can be admitted, end
// or be preempted before the last step ends.
type stepGroup struct {
	allowed     bool            // a group may be formed
	ends        []time.Duration // of its steps, from its start; reused
	bookedSteps int             // steps whose tokens are generated
}

// planSteps determines the steps of the group and returns their total time.
func (e *Engine) planSteps() time.Duration {
	x := &e.group
	x.ends, x.bookedSteps = x.ends[:0], 0
	steps := 1
	if e.fastForward && x.allowed && e.cache.journal == nil {
		steps = e.groupableSteps()
	}
	computed, sequences := e.profile.fixedCost(&e.load)
	context := e.load.DecodeContext
	var end time.Duration
	for i := range steps {
		d := float64(e.profile.stepDuration(computed, sequences, context))
		if i == 0 && e.load.HostTokens > 0 { // during the step's computation; only the first step of a group loads
			d = max(d, float64(e.load.HostTokens*e.profile.KVBytes)/(e.hostGBps*float64(e.profile.TP)))
		}
		end += time.Duration(e.noise.addNoise(e.steps+uint64(i), d) * e.slowdown)
		x.ends = append(x.ends, end)
		context += e.load.Decodes
	}
	return end
}

// groupableSteps is a lower bound of the steps that can be grouped: until the first sequence ends or the cache is
// full.
func (e *Engine) groupableSteps() int {
	steps := maxGroupedSteps
	for _, s := range e.running {
		steps = min(steps, s.request.OutputTokens-s.generated)
	}
	each := e.cache.availableBlocks() / len(e.running) // additional blocks that every sequence may take
	return max(1, min(steps, (each-1)*BlockTokens))
}

// truncateGroup ends a group with the first of its steps that ends at or after this time.
func (e *Engine) truncateGroup(at time.Time) {
	x := &e.group
	if !e.stepping || len(x.ends) < 2 {
		return
	}
	span := at.Sub(e.stepBegin)
	i := x.bookedSteps + sort.Search(len(x.ends)-x.bookedSteps, func(i int) bool { return x.ends[x.bookedSteps+i] >= span })
	if i+1 < len(x.ends) {
		x.ends = x.ends[:i+1]
		e.stepEnd = e.stepBegin.Add(x.ends[i])
	}
}

// SettleTo applies the steps of a group that have ended by now, so that Gauges and GeneratedTokens include them.
func (e *Engine) SettleTo(now time.Time) {
	e.advanceClock(now)
	if !e.stepping {
		return
	}
	x := &e.group
	span := now.Sub(e.stepBegin)
	n := x.bookedSteps
	for n < len(x.ends)-1 && x.ends[n] <= span {
		n++
	}
	e.bookSteps(n - x.bookedSteps)
}

// settleGroup applies all steps of the group but the last.
func (e *Engine) settleGroup() { e.bookSteps(len(e.group.ends) - 1 - e.group.bookedSteps) }

// bookSteps generates a number of tokens of every sequence and reserves room for the next.
func (e *Engine) bookSteps(steps int) {
	if steps <= 0 {
		return
	}
	e.reportSteps(e.group.bookedSteps, e.group.bookedSteps+steps)
	e.group.bookedSteps += steps
	e.steps += uint64(steps)
	e.counters.Steps += uint64(steps)
	for _, s := range e.running {
		s.computedTokens += steps
		s.generated += steps
		e.counters.GeneratedTokens += uint64(steps)
		e.extendBlocks(s, blocksFor(s.computedTokens+1)-s.table.countBlocks())
	}
}

// reportSteps reports the durations of some steps of the group.
func (e *Engine) reportSteps(from, to int) {
	if e.onStep == nil || e.load.Decodes == 0 {
		return
	}
	for i := max(from, 0); i < to; i++ {
		took := e.group.ends[i]
		if i > 0 {
			took -= e.group.ends[i-1]
		}
		e.onStep(took, e.load.Decodes)
	}
}
