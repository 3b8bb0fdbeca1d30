package capacity

import "slices"

// nearAmountDivisor defines near amounts: they differ by at most the greater one divided by it.
const nearAmountDivisor = 100

// SuppressSmallChanges returns next with small changes undone, so that they need not be sent: a model keeps the amounts
// of held if each is within 1 %. An amount that is 0 on one side only counts as changed, and so does any difference in
// numbers of workers, free capacity or prices. held is what was sent last, so that differences do not accumulate.
// Demand is never changed: plans depend on it, and steps in it would move clients. The result may share memory with
// both.
func SuppressSmallChanges(held, next *Summary) Summary {
	s := *next
	s.Models = suppressModelChanges(held.Models, next.Models)
	return s
}

// suppressModelChanges merges two sorted lists, and copies only if an entry is replaced. Unsorted lists are returned as
// they are: FitToLimits sorts them.
func suppressModelChanges(held, next []*ModelCapacity) []*ModelCapacity {
	out, at := next, 0
	for i := range next {
		m := next[i]
		if i > 0 && next[i-1].Name >= m.Name {
			return next
		}
		for at < len(held) && held[at].Name < m.Name {
			at++
		}
		if at == len(held) || held[at].Name != m.Name {
			continue
		}
		if near, same := compareNearModel(held[at], m); near && !same {
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

// isNearAmount reports whether two amounts are within 1 % of the greater; if one is not above 0, whether they are
// equal.
func isNearAmount(a, b int64) bool {
	if a == b {
		return true
	}
	if a <= 0 || b <= 0 {
		return false
	}
	return max(a, b)-min(a, b) <= max(a, b)/nearAmountDivisor
}
