package capacity

import (
	"cmp"
	"slices"
)

// Fit makes a Summary that Encode accepts out of one that a busy producer put together: lists sorted, duplicates
// dropped (the first stays), amounts brought into range, names over the limit dropped. Until it fits in MaxEncoded the
// smallest demands are left out, then all round trips, networks, outcomes and uses, then all prefixes and pools, then the
// last models. A lawful Summary comes back unchanged.
func Fit(s Summary) Summary {
	if s.fits() {
		return s
	}
	s = tidy(s)
	for n := len(s.Demand); ; n /= 2 {
		s.Demand = largest(s.Demand, n)
		if s.fits() {
			return s
		}
		if n == 0 {
			break
		}
	}
	s.RTTs, s.Networks, s.Outcomes, s.Uses = nil, nil, nil, nil
	for i := range s.Models {
		s.Models[i].Prefixes, s.Models[i].Pools = nil, nil
	}
	for len(s.Models) > 0 && !s.fits() {
		s.Models = s.Models[:len(s.Models)/2]
	}
	return s
}

// fits says whether Encode accepts s. Nearly always that is seen without encoding it.
func (s *Summary) fits() bool {
	if s.check() != nil {
		return false
	}
	if s.roughly() <= MaxEncoded {
		return true
	}
	_, err := marshal(summaryToPB(s))
	return err == nil
}

const (
	numberBytes = 11 // what a field with a number takes at most: its tag, and ten of a varint
	frameBytes  = 8  // what surrounds a message or a text at most
)

// roughly is how many bytes s takes at most when it is encoded, without encoding it.
func (s *Summary) roughly() int {
	n := 3*frameBytes + len(s.Path.Region) + len(s.Path.Zone) + len(s.Path.Instance) + frameBytes + len(s.Endpoint) + frameBytes + 8*numberBytes + len(s.unknown)
	n += roughModels(s.Models)
	for i := range s.Acks {
		n += 2*frameBytes + len(s.Acks[i].Parent) + 2*numberBytes + len(s.Acks[i].unknown)
	}
	for i := range s.Demand {
		d := &s.Demand[i]
		n += 4*frameBytes + len(d.Service) + len(d.Model) + len(d.Cell) + 2*numberBytes + len(d.unknown)
	}
	for i := range s.RTTs {
		n += 2*frameBytes + len(s.RTTs[i].Cell) + 3*numberBytes + len(s.RTTs[i].unknown)
	}
	for i := range s.Networks {
		x := &s.Networks[i]
		n += 3*frameBytes + len(x.Service) + len(x.Cell) + 2*numberBytes + len(x.unknown)
	}
	for i := range s.Outcomes {
		o := &s.Outcomes[i]
		n += 4*frameBytes + len(o.Service) + len(o.Model) + (TTFTBuckets+5)*numberBytes + len(o.unknown)
	}
	for i := range s.Uses {
		n += frameBytes + len(s.Uses[i].Tenant) + frameBytes + 9*numberBytes + len(s.Uses[i].unknown)
	}
	return n
}

// roughModels is how many bytes models and their pools take at most.
func roughModels(ms []Model) int {
	n := 0
	for i := range ms {
		m := &ms[i]
		n += 4*frameBytes + len(m.Name) + 21*numberBytes + len(m.Prefixes)*(8+numberBytes) + len(m.unknown) + roughModels(m.Pools)
		for j := range m.Hardware {
			n += 2*frameBytes + len(m.Hardware[j].Name) + 3*numberBytes + len(m.Hardware[j].unknown)
		}
	}
	return n
}

func tidy(s Summary) Summary {
	s.Models = lawful(s.Models, MaxModels, compareModel, func(m *Model) bool { return checkName("", m.Name, false) == nil })
	for i := range s.Models {
		tidyModel(&s.Models[i])
	}
	s.Acks = lawful(s.Acks, MaxAcks, compareAck, func(a *Ack) bool { return checkName("", a.Parent, false) == nil })
	s.Demand = lawful(s.Demand, len(s.Demand), compareDemand, func(d *Demand) bool {
		d.TokensPerSec, d.RequestsPerSecMilli = clamp(d.TokensPerSec), clamp(d.RequestsPerSecMilli)
		return cmp.Or(checkName("", d.Service, true), checkName("", d.Model, true), checkName("", d.Cell, true)) == nil
	})
	s.Demand = largest(s.Demand, MaxDemand)
	s.RTTs = lawful(s.RTTs, MaxRTTs, compareRTT, (*RTT).tidy)
	s.Networks = lawful(s.Networks, MaxNetworks, compareNetwork, (*Network).tidy)
	s.Outcomes = lawful(s.Outcomes, MaxOutcomes, compareOutcome, (*Outcome).tidy)
	s.Uses = lawful(s.Uses, MaxUses, compareUse, (*Use).tidy)
	s.Holding.AgeMillis = clamp(s.Holding.AgeMillis)
	s.unknown = ""
	return s
}

func tidyModel(m *Model) {
	for _, n := range m.amounts() {
		*n = clamp(*n)
	}
	m.WarmMillis, m.ColdMillis = clamp(m.WarmMillis), clamp(m.ColdMillis)
	m.Ready, m.KVFree, m.SlotsFree = min(m.Ready, m.Total), min(m.KVFree, m.KVTotal), min(m.SlotsFree, m.SlotsTotal)
	m.Hardware = lawful(m.Hardware, MaxHardware, compareHardware, func(h *Hardware) bool {
		h.Ready, h.PrefillRate, h.DecodeRate = clamp(h.Ready), clamp(h.PrefillRate), clamp(h.DecodeRate)
		return checkName("", h.Name, false) == nil
	})
	prefixes := slices.Clone(m.Prefixes)
	for i := range prefixes {
		prefixes[i].Tokens = clamp(prefixes[i].Tokens)
	}
	if len(prefixes) > 0 {
		m.Prefixes = mergePrefixes(prefixes, prefixes[:1]) // sorts, drops duplicates and cuts
	}
	m.Pools = tidyPools(m.Pools)
	m.unknown = ""
}

// lawful is a sorted copy of list without duplicates and without entries that keep (which may mend them) refuses.
func lawful[E any](list []E, limit int, order func(E, E) int, keep func(*E) bool) []E {
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

// largest keeps the n greatest demands, in the order of keys.
func largest(ds []Demand, n int) []Demand {
	if len(ds) <= n {
		return ds
	}
	out := slices.Clone(ds)
	slices.SortFunc(out, func(a, b Demand) int {
		if c := cmp.Compare(b.TokensPerSec, a.TokensPerSec); c != 0 {
			return c
		}
		return compareDemand(a, b)
	})
	out = out[:n]
	slices.SortFunc(out, compareDemand)
	return out
}

func clamp(n int64) int64 { return min(max(n, 0), MaxAmount) }
