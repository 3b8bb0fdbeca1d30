package pick

import "math"

// kvSoft is the part of a worker's KV cache over which a new request is expected to wait or to preempt.
const kvSoft = 0.9 // View.room reckons with it in whole tokens

// What an adapter costs that is not in the GPU's memory, in seconds.
const (
	loadAdapter = 0.5 // into a free place
	swapAdapter = 1.5 // into another's
)

// terms of a worker's cost, in seconds.
type terms struct {
	wait    float64 // prefill accepted before this request
	prefill float64 // this request's own, uncached
	kvWait  float64 // until its KV is free
	decode  float64 // what it costs the sequences beside it and after it, and they it
	adapter float64 // until the model's adapter is loaded
}

func (t *terms) sum() float64 { return t.wait + t.prefill + t.kvWait + t.decode + t.adapter }

// predictive takes the worker with the fewest predicted seconds, near-ties at random.
func (v *View) predictive() int32 {
	for _, at := range v.cands {
		v.costs[at] = v.seconds(at)
	}
	return v.lightest(nearTie)
}

// seconds is the sum of the terms of a worker's cost. It is what nearly all of a choice's time goes into: terms are kept
// apart only where somebody reads them.
func (v *View) seconds(at int32) float64 {
	load := &v.loads[at]
	if v.adapters || load.tight {
		t := v.cost(at)
		return t.sum()
	}
	b := &v.brief[at]
	own := v.own(at) * b.perToken
	wait := load.back * b.perToken
	return b.base + wait + own + after(own, wait, float64(b.later)) + v.beside(own, wait, load.count, load.held, b.slope, b.context)
}

// What counts besides times to first token, the request's own and those of who comes later, each second of it against one
// of those. They are the middle of what was best on the public traces, and the ranks of policies change little within a
// factor of two.
const (
	// answering is of a second for which an answer stands still while a prompt is computed beside it, or by which it and the
	// others make each other's steps longer: an answer of some 200 tokens may take 100 ms for each, ten times what a first
	// token may.
	answering = 0.1
	// behind is of what stands before the prompt, for each sequence there. It is no cost of this choice, for they wait for that
	// anyhow, but a sign of what is to come: where a backlog has come more is on its way.
	behind = 0.03
)

// beside is what the request and the sequences that it finds on a worker cost each other, in seconds: each is stalled while
// the request's own prompt is prefilled (and by what stands before it, wherever it goes), each step of theirs bears the
// request's context for as long as it decodes, and each of its own steps bears theirs.
func (v *View) beside(own, wait, count, held, slope, context float64) float64 {
	return count*(answering*own+behind*wait) + answering*v.out*(count*(slope+context*v.context)+slope*count+context*held)
}

// nearTie is how much worse than the best a worker may be and still share its luck: without it, equal workers would
// all be hit in the same order by every instance that sees the same numbers.
func nearTie(best float64) float64 { return max(0.001, 0.005*best) }

func (v *View) cost(at int32) (t terms) {
	b := &v.brief[at]
	a := &v.Ledger.accounts[b.id]
	seqs := float64(a.seqs())
	t.wait = v.loads[at].back * b.perToken
	t.prefill = b.base + v.own(at)*b.perToken
	own := t.prefill - b.base
	t.decode = after(own, t.wait, float64(b.later)) + v.beside(own, t.wait, seqs, float64(a.heldKV())/kilo, b.slope, b.context)
	if b.kv > 0 && seqs > 0 {
		held := float64(a.heldKV())
		if over := held + v.uncut + v.out - kvSoft*float64(b.kv); over > 0 && held > 0 {
			over = max(over-float64(v.alike(int(at), true)), 0)
			life := v.out * (b.step + b.slope*seqs + b.context*held/kilo)
			t.kvWait = min(over/held, 1) * life
		}
	}
	if v.adapters {
		switch v.Workers[at].Adapter {
		case AdapterFree:
			t.adapter = loadAdapter
		case AdapterFull:
			t.adapter = swapAdapter
		}
	}
	return t
}

// maxSeconds bounds a prediction: what is beyond belief counts as this.
const maxSeconds = 3600

// ttft is the predicted time to first token on one worker, whatever the policy was.
func (v *View) ttft(at int32) float64 {
	t := v.cost(at)
	s := t.wait + t.prefill + t.kvWait + t.adapter
	if math.IsNaN(s) {
		return maxSeconds
	}
	return max(0, min(s, maxSeconds))
}
