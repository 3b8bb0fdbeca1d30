package pick

import "math"

const (
	stickyShare = 0.8  // of the prompt must be cached for a worker to be warm
	stickyWait  = 18.0 // seconds that warmth may cost where the request names no bound
)

// stickyUntilSaturated takes the soonest of the workers that hold nearly all of the prompt, as long as the wait on one of
// the others is not shorter by more than half of what the request may wait. Then, and when nobody holds it, it
// takes the soonest of all.
func (v *View) stickyUntilSaturated() int32 {
	limit := stickyWait
	if v.patient > 0 {
		limit = v.patient / 2
	}
	// As published, what the others would have to compute anew does not speak for the warm: only what stands before the
	// request on each is compared.
	warm, cold := math.Inf(1), math.Inf(1)
	for _, at := range v.cands {
		b := &v.brief[at]
		v.costs[at] = b.base + v.pending(at)*b.perToken
		before := b.base + v.loads[at].back*b.perToken
		if v.warm(at) {
			warm = min(warm, before)
		} else {
			cold = min(cold, before)
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
