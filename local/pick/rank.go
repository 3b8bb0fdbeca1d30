package pick

import (
	"fmt"
	"math"
	"strings"

	"github.com/spillway-lb/spillway/internal/explain"
)

// lightest returns the candidate with the least cost in v.costs, those within slack of it by chance. A cost that is
// not a number is above every other.
func (v *View) lightest(slack func(best float64) float64) int32 {
	best := math.Inf(1)
	for _, at := range v.cands {
		if c := v.costs[at]; c < best {
			best = c
		}
	}
	limit := best + slack(best)
	var chosen int32 = -1
	seen := 0
	for _, at := range v.cands {
		if !(v.costs[at] <= limit) {
			continue
		}
		seen++
		if chosen < 0 || v.rng.IntN(seen) == 0 {
			chosen = at
		}
	}
	if chosen < 0 {
		return v.anybody()
	}
	return chosen
}

func exact(float64) float64 { return 0 }

// anybody returns a candidate by chance.
func (v *View) anybody() int32 { return v.cands[v.rng.IntN(len(v.cands))] }

// preferAdapters leaves the candidates on which the model's adapter is nearest.
func (v *View) preferAdapters() {
	best := AdapterFull
	for _, at := range v.cands {
		best = min(best, v.Workers[at].Adapter)
	}
	kept := v.cands[:0]
	for _, at := range v.cands {
		if v.Workers[at].Adapter == best {
			kept = append(kept, at)
		}
	}
	v.cands = kept
}

// maxNoted bounds the candidates whose own costs are named in a record.
const maxNoted = 32

// record writes down the predicted seconds of every candidate, and what the policy itself went by where that is
// something else.
func (v *View) record(r *rule, rec *explain.Record) {
	for _, at := range v.cands {
		t := v.cost(at)
		h := rec.Candidate(v.Workers[at].Name)
		h.Term("wait", t.wait)
		h.Term("prefill", t.prefill)
		h.Term("kv_wait", t.kvWait)
		h.Term("decode", t.decode)
		if t.adapter > 0 {
			h.Term("adapter", t.adapter)
		}
	}
	if r.unit == "" {
		return
	}
	var text strings.Builder
	fmt.Fprintf(&text, "decided by %s:", r.unit)
	for i, at := range v.cands {
		if i == maxNoted {
			fmt.Fprintf(&text, " and %d more", len(v.cands)-i)
			break
		}
		fmt.Fprintf(&text, " %s=%.4g", v.Workers[at].Name, v.costs[at])
	}
	rec.Note(text.String())
}
