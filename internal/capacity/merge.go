package capacity

import (
	"cmp"
	"slices"
	"strings"
)

// MergeSummaries returns the sum of two disjoint subtrees. It is associative and commutative and the zero Summary is
// its identity, so that children may report in any order and grouping. Amounts saturate at MaxAmount. Lists keep their
// first entries up to their limit, which preserves these laws. The result may share memory with a and b: treat all
// three as immutable.
func MergeSummaries(a, b Summary) Summary {
	if a.isZero() {
		return b
	}
	if b.isZero() {
		return a
	}
	return Summary{
		Path:         commonPath(a.Path, b.Path),
		Draining:     a.Draining && b.Draining,
		Models:       mergeSorted(a.Models, b.Models, MaxModels, compareModel, mergeModel),
		Acks:         mergeSorted(a.Acks, b.Acks, MaxAcks, compareAck, mergeAck),
		Demand:       mergeSorted(a.Demand, b.Demand, MaxDemand, compareDemand, mergeDemand),
		RTTs:         mergeSorted(a.RTTs, b.RTTs, MaxRTTs, compareRTT, mergeRTT),
		Networks:     mergeSorted(a.Networks, b.Networks, MaxNetworks, compareNetwork, mergeNetwork),
		Outcomes:     mergeSorted(a.Outcomes, b.Outcomes, MaxOutcomes, compareOutcome, mergeOutcome),
		TenantUsages: mergeSorted(a.TenantUsages, b.TenantUsages, MaxTenantUsages, compareUsage, mergeUsage),
		isMerged:     true,
	}
}

// NewestSummary returns the newer of two summaries of one subtree: that with the greater (Boot, Seq). It is
// associative, commutative and idempotent. A tie returns a: an instance numbers each summary once.
func NewestSummary(a, b Summary) Summary {
	if b.isNewerThan(&a) {
		return b
	}
	return a
}

func (s *Summary) isNewerThan(than *Summary) bool {
	return cmp.Or(cmp.Compare(s.Boot, than.Boot), cmp.Compare(s.Seq, than.Seq)) > 0
}

// isZero reports whether s is the identity of MergeSummaries.
func (s *Summary) isZero() bool {
	return !s.isMerged && s.Path == Path{} && s.Boot == 0 && s.Seq == 0 && s.Endpoint == "" && !s.Draining &&
		len(s.Models) == 0 && len(s.Acks) == 0 && len(s.Demand) == 0 && len(s.RTTs) == 0 && len(s.Networks) == 0 && len(s.Outcomes) == 0 &&
		len(s.TenantUsages) == 0 && s.HeldLeases == HeldLeases{} && s.unknown == ""
}

// mergeSorted returns the union of two lists sorted by order, with equal entries merged, limited to the first limit
// entries. Keeping the first entries makes the bounded union associative: an entry that remains was complete in every
// part.
func mergeSorted[E any](a, b []E, limit int, order func(E, E) int, join func(E, E) E) []E {
	if len(a) == 0 && len(b) <= limit {
		return b
	}
	if len(b) == 0 && len(a) <= limit {
		return a
	}
	out := make([]E, 0, min(len(a)+len(b), limit))
	for len(out) < limit && (len(a) > 0 || len(b) > 0) {
		c := 0
		switch {
		case len(a) == 0:
			c = 1
		case len(b) == 0:
			c = -1
		default:
			c = order(a[0], b[0])
		}
		switch {
		case c < 0:
			out, a = append(out, a[0]), a[1:]
		case c > 0:
			out, b = append(out, b[0]), b[1:]
		default:
			out, a, b = append(out, join(a[0], b[0])), a[1:], b[1:]
		}
	}
	return out
}

func mergeModel(a, b *ModelCapacity) *ModelCapacity {
	m := &ModelCapacity{Name: a.Name}
	x, y, z := a.amountFields(), b.amountFields(), m.amountFields()
	for i := range z {
		*z[i] = addAmounts(*x[i], *y[i])
	}
	m.MaxContext = max(a.MaxContext, b.MaxContext)
	m.WarmMillis, m.ColdMillis = minKnown(a.WarmMillis, b.WarmMillis), minKnown(a.ColdMillis, b.ColdMillis)
	m.Hardware = mergeSorted(a.Hardware, b.Hardware, MaxHardware, compareHardware, mergeHardware)
	m.Prefixes = mergePrefixes(a.Prefixes, b.Prefixes)
	m.Pools = mergeSorted(a.Pools, b.Pools, MaxPools, compareModel, mergeModel)
	return m
}

func mergeHardware(a, b HardwareRates) HardwareRates {
	return HardwareRates{
		Name: a.Name, Ready: addAmounts(a.Ready, b.Ready),
		PrefillRate: addAmounts(a.PrefillRate, b.PrefillRate), DecodeRate: addAmounts(a.DecodeRate, b.DecodeRate),
	}
}

func mergeAck(a, b LedgerAck) LedgerAck {
	if c := cmp.Or(cmp.Compare(a.Boot, b.Boot), cmp.Compare(a.Ticket, b.Ticket)); c < 0 {
		a = b
	}
	return LedgerAck{Parent: a.Parent, Boot: a.Boot, Ticket: a.Ticket}
}

func mergeDemand(a, b CellDemand) CellDemand {
	return CellDemand{
		Service: a.Service, Model: a.Model, Cell: a.Cell,
		TokensPerSec:        addAmounts(a.TokensPerSec, b.TokensPerSec),
		RequestsPerSecMilli: addAmounts(a.RequestsPerSecMilli, b.RequestsPerSecMilli),
	}
}

// mergePrefixes returns the union with the greatest length of each prefix, limited to the longest. A prefix that one
// part dropped had MaxPrefixes longer ones in that part, and so in the whole: the result does not depend on when the
// list is truncated.
func mergePrefixes(a, b []PrefixEntry) []PrefixEntry {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	if out, ok := mergeSortedPrefixes(a, b); ok {
		return out
	}
	return mergeUnsortedPrefixes(a, b)
}

// mergeUnsortedPrefixes is mergePrefixes of lists in any order.
func mergeUnsortedPrefixes(a, b []PrefixEntry) []PrefixEntry {
	out := append(slices.Clone(a), b...)
	slices.SortFunc(out, func(p, q PrefixEntry) int {
		return cmp.Or(cmp.Compare(p.Hash, q.Hash), cmp.Compare(q.Tokens, p.Tokens))
	})
	out = slices.CompactFunc(out, func(p, q PrefixEntry) bool { return p.Hash == q.Hash })
	slices.SortFunc(out, comparePrefix)
	return out[:min(len(out), MaxPrefixes)]
}

// mergeSortedPrefixes is mergePrefixes of two sorted lists, as those of valid summaries are. It returns false for
// others.
func mergeSortedPrefixes(a, b []PrefixEntry) (out []PrefixEntry, ok bool) {
	if !isAscending(a) || !isAscending(b) {
		return nil, false
	}
	out = make([]PrefixEntry, 0, min(len(a)+len(b), MaxPrefixes))
	for len(out) < MaxPrefixes && (len(a) > 0 || len(b) > 0) {
		next := &a
		if len(a) == 0 || len(b) > 0 && comparePrefix(b[0], a[0]) < 0 {
			next = &b
		}
		p := (*next)[0]
		*next = (*next)[1:]
		if !slices.ContainsFunc(out, func(q PrefixEntry) bool { return q.Hash == p.Hash }) { // the first occurrence is the longest
			out = append(out, p)
		}
	}
	return out, true
}

func isAscending(ps []PrefixEntry) bool {
	for i := 1; i < len(ps); i++ {
		if comparePrefix(ps[i-1], ps[i]) >= 0 {
			return false
		}
	}
	return true
}

// addAmounts saturates at MaxAmount, which is associative for amounts that are not negative.
func addAmounts(a, b int64) int64 { return min(a+b, MaxAmount) }

func compareModel(a, b *ModelCapacity) int   { return strings.Compare(a.Name, b.Name) }
func compareHardware(a, b HardwareRates) int { return strings.Compare(a.Name, b.Name) }
func compareAck(a, b LedgerAck) int          { return strings.Compare(a.Parent, b.Parent) }

func comparePrefix(a, b PrefixEntry) int {
	if a.Tokens != b.Tokens {
		return cmp.Compare(b.Tokens, a.Tokens)
	}
	return cmp.Compare(a.Hash, b.Hash)
}

// Compare orders demands as in a Summary: by service, model, then cell.
func (d CellDemand) Compare(o CellDemand) int { return compareDemand(d, o) }

func compareDemand(a, b CellDemand) int {
	if c := strings.Compare(a.Service, b.Service); c != 0 {
		return c
	}
	return cmp.Or(strings.Compare(a.Model, b.Model), strings.Compare(a.Cell, b.Cell))
}

// The functions below are for lists of entries with one name each, sorted by it.

// diffByName returns the entries of next that base does not contain, and the names of those that are only in base.
func diffByName[E comparable](base, next []E, order func(a, b E) int, name func(*E) string) (changed []E, removed []string) {
	for i := range next {
		if at, ok := slices.BinarySearchFunc(base, next[i], order); !ok || base[at] != next[i] {
			changed = append(changed, next[i])
		}
	}
	for i := range base {
		if _, ok := slices.BinarySearchFunc(next, base[i], order); !ok {
			removed = append(removed, name(&base[i]))
		}
	}
	return changed, removed
}

// withoutNames returns held without the entries of those names.
func withoutNames[E any](held []E, removed []string, name func(*E) string) []E {
	return dropMatching(held, func(x *E) bool {
		_, gone := slices.BinarySearch(removed, name(x))
		return gone
	})
}
