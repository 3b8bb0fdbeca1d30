package discover

import (
	"maps"
	"time"
)

// Stats are counts for metrics. Maps contain every possible key.
type Stats struct {
	// Workers in the list, by source.
	Workers map[string]int
	// Conflicts counts workers that were left out because of their name or URL.
	Conflicts float64
	// Lookups counts DNS lookups by outcome. OldestStale is the age of the oldest answer that is used after it
	// disappeared from DNS.
	Lookups     map[string]float64
	OldestStale time.Duration
	// Registrations counts registrations and renewals, ExpiredLeases leases that were not renewed, Rejections
	// refusals by reason.
	Registrations, ExpiredLeases float64
	Rejections                   map[string]float64
}

// Stats reads the counts.
func (s *Sources) Stats() Stats {
	st := Stats{Workers: map[string]int{}, Lookups: map[string]float64{}, Rejections: map[string]float64{}}
	for k := range numSources {
		st.Workers[k.String()] = 0
	}
	s.mu.Lock()
	for _, k := range s.sourceByWorker {
		st.Workers[k.String()]++
	}
	st.Conflicts = s.conflictCount
	s.mu.Unlock()
	for _, o := range lookupOutcomes() {
		st.Lookups[o] = 0
	}
	for _, n := range s.names {
		n.mu.Lock()
		for o, c := range n.outcomeCounts {
			st.Lookups[o] += c
		}
		st.OldestStale = max(st.OldestStale, n.oldestStale)
		n.mu.Unlock()
	}
	for _, r := range rejectionReasons() {
		st.Rejections[r] = 0
	}
	if d := s.registrationServer; d != nil {
		d.mu.Lock()
		st.Registrations, st.ExpiredLeases = d.registered, d.leases.expiredCount
		maps.Copy(st.Rejections, d.rejections)
		d.mu.Unlock()
	}
	return st
}
