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
	prefill := load.back*b.perToken + own
	return b.base + prefill + taken*own + v.beside(own+before*(prefill-own), load.count, load.held, b.slope, b.context)
}

// What counts besides the request's own time to first token, each second of it against one of that. They are the
// middle of what was best on the public traces; the ranks of policies change little within a factor of two.
const (
	taken   = 2   // of the worker's time that computing the prompt takes from all who come after it
	stalled = 0.3 // of the time for which each sequence there waits for its prefill
	before  = 0.3 // of what stands before the prompt, against the prompt itself: it is there anyhow, and tells of what is to come
	slowed  = 0.2 // of the time by which its answer and theirs make each other's steps longer
)

// beside is what the request and the sequences that it finds on a worker cost each other, in seconds: each is stalled while
// the request's own prompt is prefilled (and by what stands before it, wherever it goes), each step of theirs bears the
// request's context for as long as it decodes, and each of its own steps bears theirs.
func (v *View) beside(prefill, count, held, slope, context float64) float64 {
	return stalled*count*prefill + slowed*v.out*(count*(slope+context*v.context)+slope*count+context*held)
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
	t.decode = taken*own + v.beside(own+before*t.wait, seqs, float64(a.heldKV())/kilo, b.slope, b.context)
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
