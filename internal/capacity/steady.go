package capacity

import "slices"

// nearAmountDivisor is how much an amount may differ and still be near: one part in so many of the greater.
const nearAmountDivisor = 100

// SuppressSmallChanges is next with what hardly changed left as held has it, so that it need not be told again: a model of which every
// amount is within 1 % of held's. Nothing comes and nothing goes unsaid: what is 0 on one side alone is not near, and what
// counts workers or room, or prices them, is near only if it is the same. held is what was said last, so differences do not
// add up. Demand is always told as it is: plans are made of it, and steps in it would move clients. The result may share
// memory with both.
func SuppressSmallChanges(held, next *Summary) Summary {
	s := *next
	s.Models = suppressModelChanges(held.Models, next.Models)
	return s
}

// suppressModelChanges walks two sorted lists, and copies only if something is to be replaced. What is not sorted is left as it
// is: Fit mends it.
func suppressModelChanges(held, next []ModelCapacity) []ModelCapacity {
	out, at := next, 0
	for i := range next {
		m := &next[i]
		if i > 0 && next[i-1].Name >= m.Name {
			return next
		}
		for at < len(held) && held[at].Name < m.Name {
			at++
		}
		if at == len(held) || held[at].Name != m.Name {
			continue
		}
		if near, same := compareNearModel(&held[at], m); near && !same {
			if &out[0] == &next[0] {
				out = slices.Clone(next)
			}
			out[i] = held[at]
		}
	}
	return out
}

func compareNearModel(a, b *ModelCapacity) (near, same bool) {
	if a.Equal(*b) {
		return true, true
	}
	if a.unknown != b.unknown || a.WarmMillis != b.WarmMillis || a.ColdMillis != b.ColdMillis ||
		!slices.Equal(a.Prefixes, b.Prefixes) || !slices.EqualFunc(a.Hardware, b.Hardware, isNearHardware) {
		return false, false
	}
	exact := [...][2]int64{
		{a.Ready, b.Ready},
		{a.Total, b.Total},
		{a.KVTotal, b.KVTotal},
		{a.SlotsTotal, b.SlotsTotal},
		{a.Warm, b.Warm},
		{a.Cold, b.Cold},
		{a.CostMicros, b.CostMicros},
		{a.MaxContext, b.MaxContext},
	}
	for _, x := range exact {
		if x[0] != x[1] {
			return false, false
		}
	}
	x, y := a.amountFields(), b.amountFields()
	for i := range x {
		if !isNearAmount(*x[i], *y[i]) {
			return false, false
		}
	}
	return true, false
}

func isNearHardware(a, b HardwareRates) bool {
	return a.Name == b.Name && a.Ready == b.Ready && a.unknown == b.unknown &&
		isNearAmount(a.PrefillRate, b.PrefillRate) && isNearAmount(a.DecodeRate, b.DecodeRate)
}

// isNearAmount is true of amounts within 1 % of the greater; of those that are not both more than nothing, only when they
// are the same.
func isNearAmount(a, b int64) bool {
	if a == b {
		return true
	}
	if a <= 0 || b <= 0 {
		return false
	}
	return max(a, b)-min(a, b) <= max(a, b)/nearAmountDivisor
}
