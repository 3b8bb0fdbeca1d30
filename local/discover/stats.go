package discover

import (
	"maps"
	"time"
)

// Stats are counts for metrics. Maps have every key there can be.
type Stats struct {
	// Workers in the list, by source.
	Workers map[string]int
	// Clashes are workers that were left out for their name or URL.
	Clashes float64
	// Lookups in DNS, by outcome, and Kept how old the oldest answer is that is used though the name answers so no more.
	Lookups map[string]float64
	Kept    time.Duration
	// Registered counts registrations and renewals, Expired leases that nobody renewed, Refused refusals by reason.
	Registered, Expired float64
	Refused             map[string]float64
}

// Stats reads the counts.
func (s *Sources) Stats() Stats {
	st := Stats{Workers: map[string]int{}, Lookups: map[string]float64{}, Refused: map[string]float64{}}
	for k := range kinds {
		st.Workers[k.String()] = 0
	}
	s.mu.Lock()
	for _, k := range s.from {
		st.Workers[k.String()]++
	}
	st.Clashes = s.clashed
	s.mu.Unlock()
	for _, o := range outcomes() {
		st.Lookups[o] = 0
	}
	for _, n := range s.names {
		n.mu.Lock()
		for o, c := range n.counts {
			st.Lookups[o] += c
		}
		st.Kept = max(st.Kept, n.oldest)
		n.mu.Unlock()
	}
	for _, r := range reasons() {
		st.Refused[r] = 0
	}
	if d := s.door; d != nil {
		d.mu.Lock()
		st.Registered, st.Expired = d.renewed, d.book.expired
		maps.Copy(st.Refused, d.refusals)
		d.mu.Unlock()
	}
	return st
}
