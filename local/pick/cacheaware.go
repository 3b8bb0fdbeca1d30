package pick

import "math"

// The rule of SGLang's router, with its constants.
const (
	awareShare  = 0.3  // of the prompt must be cached for it to draw
	awareExcess = 64.0 // sequences between the heaviest and the lightest
	awareRatio  = 1.5  // and so many times as many
)

// cacheAware takes the worker that holds most of the prompt when that is a fair part of it, otherwise the one whose index
// holds least, where new prefixes displace nothing. While the fleet is out of balance, or nothing is known of the prompt's
// beginning, it takes the fewest sequences.
func (v *View) cacheAware() int32 {
	least, most := math.Inf(1), 0.0
	for _, at := range v.cands {
		n := v.seqs(at) / v.brief[at].power
		least, most = min(least, n), max(most, n)
	}
	if v.Index == nil || len(v.q.Blocks) == 0 || most-least > awareExcess && most > awareRatio*least {
		return v.weightedLeastConnections()
	}
	longest := 0.0
	for _, at := range v.cands {
		longest = max(longest, v.hit(at))
	}
	warm := longest > 0 && longest >= awareShare*v.uncut
	for _, at := range v.cands {
		switch {
		case !warm:
			v.costs[at] = (float64(v.Index.Held(v.brief[at].id)) + 1) / v.brief[at].power
		case v.hit(at) >= longest:
			v.costs[at] = 0
		default:
			v.costs[at] = v.uncached(at)
		}
		v.costs[at] += aBit * v.connections(at)
	}
	return v.lightest(exact)
}

// aBit lets sequences decide between workers that are otherwise equal, and only then.
const aBit = 1e-6
