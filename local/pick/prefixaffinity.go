package pick

// When a cached prefix draws, and when the load overrides it.
const (
	affinityShare  = 0.3 // of the prompt must be cached for it to matter
	affinityExcess = 8.0 // sequences more than the lightest
	affinityRatio  = 1.5 // and so many times as many
)

// prefixAffinity takes the worker that holds most of the prompt, if that is a fair part of it, unless it holds so many
// more sequences than the lightest that the balance matters more. Then, as for prompts nobody knows, the lightest is
// taken.
func (v *View) prefixAffinity() int32 {
	most := 0.0
	for _, at := range v.cands {
		v.costs[at] = v.connections(at)
		most = max(most, v.hit(at))
	}
	lightest := v.lightest(exact)
	if most < affinityShare*v.uncut || most == 0 {
		return lightest
	}
	least := v.costs[lightest]
	chosen := int32(-1)
	for _, at := range v.cands {
		if v.hit(at) < most {
			continue
		}
		if chosen < 0 || v.costs[at] < v.costs[chosen] {
			chosen = at
		}
	}
	if c := v.costs[chosen]; c > least+affinityExcess && c > affinityRatio*least {
		return lightest
	}
	return chosen
}

// hit is the part of the prompt that a worker has cached, as far as such beliefs have been true, in tokens.
func (v *View) hit(at int32) float64 { return float64(v.cached[at]) * v.brief[at].hit }
