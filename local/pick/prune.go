package pick

// The default policy wants the least of the predicted seconds, and to learn whether a worker has room takes longer than
// a lower bound of what it costs. So while nobody has asked for the record, a worker that cannot come near the best found
// yet is passed over before anything else is asked of it: of a thousand workers a dozen are looked at.

// lane is what a worker's lower bound is reckoned from. It fills a cache line.
type lane struct {
	rate     float64 // prefill tokens/s
	perToken float64
	base     float64
	hit      float64
	slope    float64
	context  float64
	bend     float64
	later    float32 // Worker.Later
	id       int32
}

// pruneFrom is how much over the limit a bound must be, as a factor, so that the order in which terms are summed decides
// nothing.
const pruneFrom = 1 + 1e-9

// least returns a lower bound of what the worker costs: without its lateness, its KV cache and its adapter. It notes what
// the worker has of the prompt.
func (v *View) least(at int) float64 {
	b := &v.lanes[at]
	if uint(b.id) >= uint(len(v.Ledger.accounts)) {
		return 0 // it is not in the ledger, as room finds
	}
	a := &v.Ledger.accounts[b.id]
	cached := v.held(b.id)
	v.cached[at] = cached
	// What backlogAt says, without its branches: those depend on the moment, and a processor cannot foresee them.
	done := min(float64(v.now-a.headAt)*1e-9*b.rate, headMost*float64(a.headTokens))
	had := float64(cached) * b.hit
	own := bent(v.uncut-had, had, b.bend) * b.perToken
	wait := (float64(a.backlog+a.foreignBacklog) - done) * b.perToken
	alone := b.base + wait + own + after(own, wait, float64(b.later))
	if alone > v.limit { // too much already, before what the sequences there bear
		return alone
	}
	return alone + v.beside(own, wait, float64(a.seqs()), float64(a.heldKV())/kilo, b.slope, b.context)
}

// found lowers the limit by a candidate's cost.
func (v *View) found(at int32) {
	if c := v.seconds(at); c < v.best {
		v.best = c
		v.limit = (c + nearTie(c)) * pruneFrom
	}
}
