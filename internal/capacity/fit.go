package capacity

import (
	"cmp"
	"slices"
)

// FitToLimits returns a summary that EncodeSummary accepts: lists are sorted, later duplicates dropped, amounts limited
// to their range, and entries with too long names dropped. Until it fits in MaxEncoded bytes, it drops the smallest
// demands, then all round trips, networks, outcomes and uses, then all prefixes and pools, then the last models. A
// valid summary is returned unchanged.
func FitToLimits(s Summary) Summary {
	if s.isEncodable() {
		return s
	}
	s = normalizeSummary(s)
	for n := len(s.Demand); ; n /= 2 {
		s.Demand = largestDemands(s.Demand, n)
		if s.isEncodable() {
			return s
		}
		if n == 0 {
			break
		}
	}
	s.RTTs, s.Networks, s.Outcomes, s.TenantUsages = nil, nil, nil, nil
	for i := range s.Models {
		s.Models[i].Prefixes, s.Models[i].Pools = nil, nil // copies of normalizeSummary
	}
	for len(s.Models) > 0 && !s.isEncodable() {
		s.Models = s.Models[:len(s.Models)/2]
	}
	return s
}

// isEncodable reports whether EncodeSummary accepts s. The estimated size answers that in nearly all cases without
// encoding.
func (s *Summary) isEncodable() bool {
	if s.checkLimits() != nil {
		return false
	}
	if s.estimateSize() <= MaxEncoded {
		return true
	}
	_, err := marshalBounded(summaryToPB(s))
	return err == nil
}

const (
	maxNumberBytes = 11 // maximum size of a numeric field: its tag, and ten bytes of a varint
	maxFrameBytes  = 8  // maximum size of the header of a message or a text
)

// estimateSize returns an upper bound of the encoded size of s, in bytes.
func (s *Summary) estimateSize() int {
	n := 3*maxFrameBytes + len(s.Path.Region) + len(s.Path.Zone) + len(s.Path.Instance) + maxFrameBytes + len(s.Endpoint) + maxFrameBytes + 8*maxNumberBytes + len(s.unknown)
	n += estimateModelsSize(s.Models)
	for i := range s.Acks {
		n += 2*maxFrameBytes + len(s.Acks[i].Parent) + 2*maxNumberBytes + len(s.Acks[i].unknown)
	}
	for i := range s.Demand {
		d := &s.Demand[i]
		n += 4*maxFrameBytes + len(d.Service) + len(d.Model) + len(d.Cell) + 2*maxNumberBytes + len(d.unknown)
	}
	for i := range s.RTTs {
		n += 2*maxFrameBytes + len(s.RTTs[i].Cell) + 3*maxNumberBytes + len(s.RTTs[i].unknown)
	}
	for i := range s.Networks {
		x := &s.Networks[i]
		n += 3*maxFrameBytes + len(x.Service) + len(x.Cell) + 2*maxNumberBytes + len(x.unknown)
	}
	for i := range s.Outcomes {
		o := &s.Outcomes[i]
		n += 4*maxFrameBytes + len(o.Service) + len(o.Model) + (TTFTBuckets+5)*maxNumberBytes + len(o.unknown)
	}
	for i := range s.TenantUsages {
		n += maxFrameBytes + len(s.TenantUsages[i].Tenant) + maxFrameBytes + 9*maxNumberBytes + len(s.TenantUsages[i].unknown)
	}
	return n
}

// estimateModelsSize returns an upper bound of the encoded size of models and their pools, in bytes.
func estimateModelsSize(ms []*ModelCapacity) int {
	n := 0
	for _, m := range ms {
		n += 4*maxFrameBytes + len(m.Name) + 21*maxNumberBytes + len(m.Prefixes)*(8+maxNumberBytes) + len(m.unknown) + estimateModelsSize(m.Pools)
		for j := range m.Hardware {
			n += 2*maxFrameBytes + len(m.Hardware[j].Name) + 3*maxNumberBytes + len(m.Hardware[j].unknown)
		}
	}
	return n
}

func normalizeSummary(s Summary) Summary {
	s.Models = copyModels(s.Models, MaxModels)
	for _, m := range s.Models {
		normalizeModel(m)
	}
	s.Acks = sortAndFilter(s.Acks, MaxAcks, compareAck, func(a *LedgerAck) bool { return checkName("", a.Parent, false) == nil })
	s.Demand = sortAndFilter(s.Demand, len(s.Demand), compareDemand, func(d *CellDemand) bool {
		d.TokensPerSec, d.RequestsPerSecMilli = clampToRange(d.TokensPerSec), clampToRange(d.RequestsPerSecMilli)
		return cmp.Or(checkName("", d.Service, true), checkName("", d.Model, true), checkName("", d.Cell, true)) == nil
	})
	s.Demand = largestDemands(s.Demand, MaxDemand)
	s.RTTs = sortAndFilter(s.RTTs, MaxRTTs, compareRTT, (*CellRTT).normalizeFields)
	s.Networks = sortAndFilter(s.Networks, MaxNetworks, compareNetwork, (*ClientNetwork).normalizeFields)
	s.Outcomes = sortAndFilter(s.Outcomes, MaxOutcomes, compareOutcome, (*OutcomeCounts).normalizeFields)
	s.TenantUsages = sortAndFilter(s.TenantUsages, MaxTenantUsages, compareUsage, (*TenantUsage).normalizeFields)
	s.HeldLeases.AgeMillis = clampToRange(s.HeldLeases.AgeMillis)
	s.unknown = ""
	return s
}

// copyModels returns copies of the models, sorted, at most limit, and without those that have no name.
func copyModels(ms []*ModelCapacity, limit int) []*ModelCapacity {
	out := sortAndFilter(ms, limit, compareModel, func(m **ModelCapacity) bool { return checkName("", (*m).Name, false) == nil })
	for i, m := range out {
		c := *m
		out[i] = &c
	}
	return out
}

func normalizeModel(m *ModelCapacity) {
	for _, n := range m.amountFields() {
		*n = clampToRange(*n)
	}
	m.WarmMillis, m.ColdMillis = clampToRange(m.WarmMillis), clampToRange(m.ColdMillis)
	m.Ready, m.KVFree, m.SlotsFree = min(m.Ready, m.Total), min(m.KVFree, m.KVTotal), min(m.SlotsFree, m.SlotsTotal)
	m.Hardware = sortAndFilter(m.Hardware, MaxHardware, compareHardware, func(h *HardwareRates) bool {
		h.Ready, h.PrefillRate, h.DecodeRate = clampToRange(h.Ready), clampToRange(h.PrefillRate), clampToRange(h.DecodeRate)
		return checkName("", h.Name, false) == nil
	})
	prefixes := slices.Clone(m.Prefixes)
	for i := range prefixes {
		prefixes[i].Tokens = clampToRange(prefixes[i].Tokens)
	}
	if len(prefixes) > 0 {
		m.Prefixes = mergePrefixes(prefixes, prefixes[:1]) // sorts, drops duplicates and truncates
	}
	m.Pools = normalizePools(m.Pools)
	m.unknown = ""
}

// sortAndFilter returns a sorted copy of list without duplicates and without entries for which keep returns false. keep
// may correct an entry.
func sortAndFilter[E any](list []E, limit int, order func(E, E) int, keep func(*E) bool) []E {
	out := make([]E, 0, len(list))
	for _, e := range list {
		if keep(&e) {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, order)
	out = slices.CompactFunc(out, func(a, b E) bool { return order(a, b) == 0 })
	return out[:min(len(out), limit)]
}

// largestDemands returns the n greatest demands, in the order of keys.
func largestDemands(ds []CellDemand, n int) []CellDemand {
	if len(ds) <= n {
		return ds
	}
	out := slices.Clone(ds)
	slices.SortFunc(out, func(a, b CellDemand) int {
		if c := cmp.Compare(b.TokensPerSec, a.TokensPerSec); c != 0 {
			return c
		}
		return compareDemand(a, b)
	})
	out = out[:n]
	slices.SortFunc(out, compareDemand)
	return out
}

func clampToRange(n int64) int64 { return min(max(n, 0), MaxAmount) }
