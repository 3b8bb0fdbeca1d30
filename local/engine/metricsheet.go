package engine

import (
	"math"
	"slices"
	"time"
)

// quantity is one value that a metrics page may contain.
type quantity uint8

const (
	qNone quantity = iota
	qRunning
	qWaiting
	qOldWaiting
	qUsage      // of the KV cache, 0..1
	qOldUsage   // the same under an earlier name
	qKV         // size of the KV cache, in tokens
	qKVAbsolute // the same under another name, which takes precedence
	qBlocks     // the same, in blocks
	qBlockSize
	qSlots
	qPrompt
	qOutput
	qQueries
	qHits
	qOldQueries
	qOldHits
	qServed
	qPreemptions
	qAsleep
	qMaxAdapters
	numQuantities
)

// Maximum plausible values.
const (
	maxSeqs   = 1 << 20
	maxTokens = 1 << 53 // of a counter, exact in a float64
	maxKV     = 1 << 40
	maxSeries = 1024 // of one quantity
)

func (q quantity) maxValue() float64 {
	switch q {
	case qRunning, qWaiting, qOldWaiting, qSlots, qMaxAdapters, qBlockSize:
		return maxSeqs
	case qUsage, qOldUsage:
		return 1.01 // allows for rounding
	case qKV, qKVAbsolute, qBlocks:
		return maxKV
	case qAsleep:
		return 1
	}
	return maxTokens
}

// seriesTally is one quantity over its series. Series that differ only in labels of copies (the ranks of one
// tensor-parallel engine) count once, by the largest; all others are parts that are added up.
type seriesTally []tallyPart

type tallyPart struct {
	key   uint64 // hash of the labels that distinguish parts
	value float64
}

func (t seriesTally) total() float64 {
	var s float64
	for _, p := range t {
		s += p.value
	}
	return min(s, maxTokens)
}

func (t seriesTally) mean() float64 { return t.total() / float64(len(t)) }

func (t seriesTally) valueOf(key uint64) (float64, bool) {
	i := slices.IndexFunc(t, func(p tallyPart) bool { return p.key == key })
	if i < 0 {
		return 0, false
	}
	return t[i].value, true
}

// metricSheet collects the values of one page.
type metricSheet struct {
	copyLabels []string // labels that distinguish copies of one value
	kindLabels []string // labels that determine the quantity
	tallies    [numQuantities]seriesTally
	adapters   adapterSet
	accepted   int
	ignored    int64
}

// addSeries adds one series as q.
func (s *metricSheet) addSeries(q quantity, l promSeries) {
	labels, v, ok := l.parseSeries()
	if !ok {
		s.ignored++
		return
	}
	s.addValue(q, s.partKey(labels), v)
}

// addValue adds one value if it is in range.
func (s *metricSheet) addValue(q quantity, key uint64, v float64) {
	t := &s.tallies[q]
	if !(v >= 0 && v <= q.maxValue()) || len(*t) == maxSeries { // false for NaN
		s.ignored++
		return
	}
	s.accepted++
	for i := range *t {
		if p := &(*t)[i]; p.key == key {
			if p.value != v && len(s.copyLabels) == 0 {
				s.ignored++ // one series twice with different values
			}
			p.value = max(p.value, v)
			return
		}
	}
	*t = append(*t, tallyPart{key, v})
}

// partKey hashes the labels that distinguish parts.
func (s *metricSheet) partKey(labels []byte) uint64 {
	h := hashFNV(fnvBasis, nil)
	for name, value := range labelPairs(labels) {
		if !slices.Contains(s.copyLabels, string(name)) && !slices.Contains(s.kindLabels, string(name)) {
			h = hashFNV(hashFNV(h, name), value)
		}
	}
	return h
}

const (
	fnvBasis = 14695981039346656037
	fnvPrime = 1099511628211
)

// hashFNV continues h (FNV-1a) with b and an end mark.
func hashFNV(h uint64, b []byte) uint64 {
	for _, c := range b {
		h = (h ^ uint64(c)) * fnvPrime
	}
	return (h ^ 0xff) * fnvPrime
}

func (s *metricSheet) hasQuantity(q quantity) bool { return len(s.tallies[q]) > 0 }

// useFallback uses the tally of an old name where the new name has no series.
func (s *metricSheet) useFallback(q, old quantity) {
	if !s.hasQuantity(q) {
		s.tallies[q] = s.tallies[old]
	}
}

// applyTo applies the collected values to the last reading.
func (s *metricSheet) applyTo(last Reading, now time.Time) Reading {
	r := last
	s.useFallback(qUsage, qOldUsage)
	s.useFallback(qQueries, qOldQueries)
	s.useFallback(qHits, qOldHits)
	s.dropContradictions()
	s.applyCacheUsage(&r)
	for _, d := range []struct {
		q   quantity
		dst *int64
	}{{qRunning, &r.Running}, {qWaiting, &r.Waiting}, {qSlots, &r.Slots}, {qMaxAdapters, &r.MaxAdapters}} {
		if s.hasQuantity(d.q) {
			*d.dst = int64(math.Round(s.tallies[d.q].total()))
		}
	}
	for _, d := range []struct {
		q   quantity
		dst *float64
	}{
		{qPrompt, &r.PromptTokens},
		{qOutput, &r.OutputTokens},
		{qQueries, &r.PrefixQueries},
		{qHits, &r.PrefixHits},
		{qServed, &r.Served},
		{qPreemptions, &r.Preemptions},
	} {
		if s.hasQuantity(d.q) {
			*d.dst = s.tallies[d.q].total()
		}
	}
	if s.hasQuantity(qAsleep) {
		r.Asleep = s.tallies[qAsleep].total() > 0
	}
	if s.adapters.reported {
		r.Adapters = s.adapters.activeNames()
	}
	if s.hasQuantity(qRunning) || s.hasQuantity(qWaiting) {
		r.LoadReadAt = now
	}
	r.Ignored += s.ignored
	r.ReadAt = now
	return r
}

// dropContradictions drops values that cannot both be true.
func (s *metricSheet) dropContradictions() {
	if s.hasQuantity(qHits) && (!s.hasQuantity(qQueries) || s.tallies[qHits].total() > s.tallies[qQueries].total()) {
		s.tallies[qHits], s.tallies[qQueries] = nil, nil
		s.ignored++
	}
}

// applyCacheUsage sets the size and usage of the KV cache.
func (s *metricSheet) applyCacheUsage(r *Reading) {
	if s.hasQuantity(qUsage) {
		r.KVUsage, r.KVReported = min(s.tallies[qUsage].mean(), 1), true
	}
	total := s.tallies[qKV].total()
	for _, b := range s.tallies[qBlocks] {
		size, ok := s.tallies[qBlockSize].valueOf(b.key)
		if !ok && len(s.tallies[qBlockSize]) == 1 {
			size = s.tallies[qBlockSize][0].value
		}
		total += b.value * size
	}
	switch {
	case total > maxKV:
		s.ignored++
	case total >= 1:
		r.KVTotal = int64(total)
	}
}
