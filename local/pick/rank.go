package pick

import (
	"fmt"
	"math"
	"strings"

	"github.com/spillway-lb/spillway/internal/explain"
)

// pickCheapest returns the candidate with the least cost in v.costs, at random among those within slack of it. A cost
// that is NaN ranks above every other.
func (v *WorkerView) pickCheapest(slack func(best float64) float64) int32 {
	best := math.Inf(1)
	for _, at := range v.candidates {
		if c := v.costs[at]; c < best {
			best = c
		}
	}
	limit := best + slack(best)
	var chosen int32 = -1
	seen := 0
	for _, at := range v.candidates {
		if !(v.costs[at] <= limit) {
			continue
		}
		seen++
		if chosen < 0 || v.rng.IntN(seen) == 0 {
			chosen = at
		}
	}
	if chosen < 0 {
		return v.pickRandom()
	}
	return chosen
}

func zeroSlack(float64) float64 { return 0 }

// pickRandom returns a random candidate.
func (v *WorkerView) pickRandom() int32 { return v.candidates[v.rng.IntN(len(v.candidates))] }

// filterByAdapter keeps the candidates with the best AdapterState of any.
func (v *WorkerView) filterByAdapter() {
	best := AdapterSlotsFull
	for _, at := range v.candidates {
		best = min(best, v.Workers[at].Adapter)
	}
	kept := v.candidates[:0]
	for _, at := range v.candidates {
		if v.Workers[at].Adapter == best {
			kept = append(kept, at)
		}
	}
	v.candidates = kept
}

// maxNotedCosts bounds the candidates whose costs are listed in an explanation.
const maxNotedCosts = 32

// recordCosts records the predicted seconds of every candidate, and the policy's own costs where they have another
// unit.
func (v *WorkerView) recordCosts(r *policyRule, rec *explain.Explanation) {
	for _, at := range v.candidates {
		t := v.predictTerms(at)
		h := rec.AddCandidate(v.Workers[at].Name)
		h.AddTerm("wait", t.wait)
		h.AddTerm("prefill", t.prefill)
		h.AddTerm("kv_wait", t.kvWait)
		h.AddTerm("decode", t.interference)
		if t.adapter > 0 {
			h.AddTerm("adapter", t.adapter)
		}
	}
	if r.unit == "" {
		return
	}
	var text strings.Builder
	fmt.Fprintf(&text, "decided by %s:", r.unit)
	for i, at := range v.candidates {
		if i == maxNotedCosts {
			fmt.Fprintf(&text, " and %d more", len(v.candidates)-i)
			break
		}
		fmt.Fprintf(&text, " %s=%.4g", v.Workers[at].Name, v.costs[at])
	}
	rec.AddNote(text.String())
}
