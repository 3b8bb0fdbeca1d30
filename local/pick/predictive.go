package pick

import (
	"math/rand/v2"

	"github.com/spillway-lb/spillway/internal/explain"
)

// kvSoft is the part of a worker's KV cache over which a new request is expected to wait or to preempt.
const kvSoft = 0.9

// terms of a worker's cost, in seconds.
type terms struct {
	wait    float64 // prefill accepted before this request
	prefill float64 // this request's own, uncached
	kvWait  float64 // until its KV is free
	decode  float64 // what it costs the sequences that run beside it
}

func (t terms) sum() float64 { return t.wait + t.prefill + t.kvWait + t.decode }

// predictive takes the worker with the fewest predicted seconds, near-ties at random.
func (v *View) predictive(q *Query, rng *rand.Rand, rec *explain.Record) int32 {
	for _, at := range v.cands {
		t := v.cost(q, at)
		v.costs[at] = t.sum()
		if rec.On() {
			h := rec.Candidate(v.Workers[at].Name)
			h.Term("wait", t.wait)
			h.Term("prefill", t.prefill)
			h.Term("kv_wait", t.kvWait)
			h.Term("decode", t.decode)
		}
	}
	return v.lightest(rng, nearTie)
}

// nearTie is how much worse than the best a worker may be and still share its luck: without it, equal workers would
// all be hit in the same order by every instance that sees the same numbers.
func nearTie(best float64) float64 { return max(0.001, 0.02*best) }

func (v *View) cost(q *Query, at int32) terms {
	w := &v.Workers[at]
	s := v.Ledger.at(w.ID)
	r := &w.Rates
	perToken := 1 / (r.PrefillRate * v.share(w) * w.weight())
	seqs := float64(s.seqs())
	var t terms
	t.wait = v.back[at] * perToken
	t.prefill = r.PrefillBase + (float64(q.PromptTokens)-float64(v.cached[at])*r.trust())*perToken
	out := float64(q.OutputTokens)
	t.decode = out * r.StepSlope * seqs
	if w.KVTotal > 0 && seqs > 0 {
		soft := kvSoft * float64(w.KVTotal)
		held := float64(s.heldKV())
		if over := held + float64(q.PromptTokens) + out - soft; over > 0 && held > 0 {
			life := out * (r.StepBase + r.StepSlope*seqs)
			t.kvWait = min(over/held, 1) * life
		}
	}
	return t
}

// ttft is the predicted time to first token on one worker, whatever the policy was.
func (v *View) ttft(q *Query, at int32) float64 {
	t := v.cost(q, at)
	return t.wait + t.prefill + t.kvWait
}
