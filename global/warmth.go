package global

import "github.com/spillway-lb/spillway/internal/capacity"

// warmth is the part of the model's hot prefixes, by tokens, that a region's caches hold: 0..1, and 1 where nothing is
// known to be hot anywhere.
func (v *View) warmth(m *capacity.Model) float64 {
	if !v.prefixesCount() {
		return 1
	}
	best := map[uint64]int64{}
	for r := range v.regions {
		if other := v.regions[r].group.Summary.Model(m.Name); other != nil {
			for _, p := range other.Prefixes {
				best[p.Hash] = max(best[p.Hash], p.Tokens)
			}
		}
	}
	var all, held int64
	for _, tokens := range best {
		all += tokens
	}
	for _, p := range m.Prefixes {
		held += p.Tokens
	}
	if all <= 0 {
		return 1
	}
	return float64(held) / float64(all)
}

// prefixesCount reports whether any service of the spec says that warm caches matter.
func (v *View) prefixesCount() bool {
	for i := range v.spec.Services {
		if v.spec.Services[i].PrefixTokens > 0 {
			return true
		}
	}
	return false
}
