package pick

import "math"

const (
	stickyShare = 0.8  // of the prompt must be cached for a worker to be warm
	stickyWait  = 18.0 // seconds that warmth may cost where the request names no bound
)

// stickyUntilSaturated takes the soonest of the workers that hold nearly all of the prompt, as long as the soonest of
// the others would not be sooner by more than half of what the request may wait. Then, and when nobody holds it, it
// takes the soonest of all.
func (v *View) stickyUntilSaturated() int32 {
	limit := stickyWait
	if v.patient > 0 {
		limit = v.patient / 2
	}
	warm, cold := math.Inf(1), math.Inf(1)
	for _, at := range v.cands {
		b := &v.brief[at]
		v.costs[at] = b.base + v.pending(at)*b.perToken
		if v.warm(at) {
			warm = min(warm, v.costs[at])
		} else {
			cold = min(cold, v.costs[at])
		}
	}
	if warm < math.Inf(1) && !(warm-cold > limit) {
		kept := v.cands[:0]
		for _, at := range v.cands {
			if v.warm(at) {
				kept = append(kept, at)
			}
		}
		v.cands = kept
	}
	return v.lightest(nearTie)
}

func (v *View) warm(at int32) bool { return v.cached[at] > 0 && v.hit(at) >= stickyShare*v.uncut }
