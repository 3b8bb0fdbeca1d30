package pick

import (
	"math"

	"github.com/spillway-lb/spillway/internal/explain"
)

// A guest is a request beyond its tenant's part of a zone, while others want theirs (queue.Guest). What a guest takes, the
// others notice in two ways only, for a worker's engine shares each step among all that it holds: their prefill waits for
// the step under way and shares the next one, and every step is as long as what is decoded in it. So a guest is let into
// an engine in such pieces that neither is much: a prompt when the one before it is nearly done, and a bounded batch. The
// rest waits in the queue, where others pass it. That is Sarathi-Serve's bound on a step (OSDI'24, "stall-free batching":
// chunks of a few hundred tokens, decodes first), kept from outside, because nobody outside chooses an engine's chunks.
//
// Engines must be kept busy all the same, or the zone serves less for being fair. A step without any prompt in it takes the
// time for reading the weights whatever it decodes: so the next prompt is there before the last one's first token has
// come back, and batches may grow to what prompts that come one after the other make of them. And who comes finds a choice
// of workers: a long prompt is let in only while some others have no prefill at all.
//
// A guest whose prompt a worker has cached waits for that worker, for as long as computing it elsewhere takes: agents whose
// turns are computed anew wherever there is room take all engines' time and each other's caches, and everybody's too.
//
// The bounds on prefill are in tokens and not in seconds: rates are learned from answers, and under a flood these say least.

const (
	// guestPrefill is how much prefill may stand in an engine when a guest joins it, what it must compute of its own prompt
	// included, in tokens, as far as the clock says that it still stands there. It is what a step takes in two times or so
	// the time that it needs for reading the weights anyway (peak FLOP/s over bytes/s: 150 to 300 tokens from A100 to H200). A
	// longer one must have the engine's prefill to itself, and leaves some workers without any (View.calm).
	guestPrefill = 450
	// guestStep is how many times as long as that of a lone sequence a worker's step may become by guests.
	guestStep = 2.0
	// keptStep is that where its prompt is cached: all that a guest costs there are steps, and anywhere else a prompt.
	keptStep = 3.0
	// guestSeqs may be there in any case, whatever is believed of steps.
	guestSeqs = 4
)

// hosts leaves the candidates that have room for a guest.
func (v *View) hosts(rec *explain.Record) {
	kept, keeper := v.cands[:0], v.keeper()
	calm, wanted := v.calm()
	for _, at := range v.cands {
		if v.host(at, int(at) == keeper, calm > wanted) && v.home(int(at), keeper) {
			kept = append(kept, at)
		} else if rec.On() {
			rec.Candidate(v.Workers[at].Name).Drop(dropGuest.String())
		}
	}
	v.cands = kept
}

// calm counts the workers that are up for the request and have no prefill, and says how many of them long guests leave so:
// spare servers are wanted by the square root of all (Halfin and Whitt), half of it here, none where there are fewer than
// four.
func (v *View) calm() (n, wanted int) {
	up := 0
	for i := range v.gates {
		a := v.Ledger.account(v.gates[i].id)
		if v.gates[i].down || a == nil || v.walled && v.barred(i) != dropNot {
			continue
		}
		up++
		if a.backlog+a.foreignBacklog == 0 {
			n++
		}
	}
	return n, int(math.Sqrt(float64(up)) / 2)
}

// host says whether a worker that has room has it for a guest. keeps says that it holds the prompt, calm that enough others
// are without prefill for a long one.
func (v *View) host(at int32, keeps, calm bool) bool {
	b := &v.brief[at]
	a := v.Ledger.account(b.id)
	own := v.uncut - float64(v.held(b.id))*b.hit
	back := a.backlogAt(v.now, v.gates[at].rate)
	switch {
	case back > 0 && !(back+own <= guestPrefill):
		return false
	case own > guestPrefill && !calm:
		return false
	}
	most := guestStep
	if keeps {
		most = keptStep
	}
	seqs := float64(a.seqs())
	alone := b.step + b.slope + b.context*v.context
	return seqs < guestSeqs || !(alone+b.slope*seqs+b.context*float64(a.heldKV())/kilo > most*alone)
}

// keeper is the worker that is up and holds the most of the prompt, half of it at least; -1 when none does.
func (v *View) keeper() int {
	best, most := -1, int32(v.prompt/2)
	if !v.known {
		return best
	}
	for i := range v.gates {
		if n := v.held(v.gates[i].id); n > most && !v.gates[i].down {
			best, most = i, n
		}
	}
	return best
}

// home says whether a guest may be computed at a worker although another one keeps its prompt: once it has waited for that
// one as long as computing the difference takes. Sooner it would take that time from everybody, and its place in that cache
// from somebody, who would then do the same.
func (v *View) home(at, keeper int) bool {
	if keeper < 0 || at == keeper {
		return true
	}
	more := v.spared(keeper, v.gates[keeper].id) - v.spared(at, v.gates[at].id)
	return v.q.Waited.Seconds()*v.gates[at].rate >= more
}

// Prefilled counts what a worker has prefilled since it was added: prompts whose first byte has come. Homed are those of
// them that went where most was cached, where what was sent is counted.
type Prefilled struct{ Tokens, Prompts, Homed int64 }

// Prefilled reads a worker's count.
func (l *Ledger) Prefilled(id int32) Prefilled {
	if l.account(id) == nil {
		return Prefilled{}
	}
	return l.slots[id].prefilled
}

// hidden is the part of a step without prefill that a step with a whole prompt hides: weights are read while it computes.
const hidden = 0.85

// Slowed is how much longer steps have taken for what was prefilled meanwhile, in seconds.
func (r *Rates) Slowed(from, to Prefilled) float64 {
	return max(0, float64(to.Tokens-from.Tokens)/r.PrefillRate-hidden*r.StepBase*float64(to.Prompts-from.Prompts))
}
