package engine

import (
	"math"
	"slices"
	"time"
)

// quantity is one thing that a metrics page may say.
type quantity uint8

const (
	qNone quantity = iota
	qRunning
	qWaiting
	qOldWaiting
	qUsage      // of the KV cache, 0..1
	qOldUsage   // the same under a name that the engine has given up
	qKV         // size of the KV cache, in tokens
	qKVAbsolute // the same, where another name says it too and this one is to be believed
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

// Greatest values that can be.
const (
	maxSeqs   = 1 << 20
	maxTokens = 1 << 53 // a counter's, exact in a float
	maxKV     = 1 << 40
	maxSeries = 1024 // of one quantity
)

func (q quantity) limit() float64 {
	switch q {
	case qRunning, qWaiting, qOldWaiting, qSlots, qMaxAdapters, qBlockSize:
		return maxSeqs
	case qUsage, qOldUsage:
		return 1.01 // rounding
	case qKV, qKVAbsolute, qBlocks:
		return maxKV
	case qAsleep:
		return 1
	}
	return maxTokens
}

// tally is one quantity over its series. Series that differ only in labels that name copies of one thing (the ranks of
// one tensor-parallel engine) count once, by the largest; all others are parts of a whole and are added up.
type tally []part

type part struct {
	key   uint64 // of the labels that tell parts apart
	value float64
}

func (t tally) sum() float64 {
	var s float64
	for _, p := range t {
		s += p.value
	}
	return min(s, maxTokens)
}

func (t tally) mean() float64 { return t.sum() / float64(len(t)) }

func (t tally) of(key uint64) (float64, bool) {
	i := slices.IndexFunc(t, func(p part) bool { return p.key == key })
	if i < 0 {
		return 0, false
	}
	return t[i].value, true
}

// sheet gathers what one page says.
type sheet struct {
	copies   []string // labels that tell copies of one thing apart
	kinds    []string // labels that say which quantity it is
	tallies  [numQuantities]tally
	adapters adapters
	taken    int
	ignored  int64
}

// add takes one series in as q.
func (s *sheet) add(q quantity, l series) {
	labels, v, ok := l.read()
	if !ok {
		s.ignored++
		return
	}
	s.put(q, s.key(labels), v)
}

// put takes one value in, if it can be.
func (s *sheet) put(q quantity, key uint64, v float64) {
	t := &s.tallies[q]
	if !(v >= 0 && v <= q.limit()) || len(*t) == maxSeries { // false for NaN
		s.ignored++
		return
	}
	s.taken++
	for i := range *t {
		if p := &(*t)[i]; p.key == key {
			if p.value != v && len(s.copies) == 0 {
				s.ignored++ // one series twice, at odds with itself
			}
			p.value = max(p.value, v)
			return
		}
	}
	*t = append(*t, part{key, v})
}

// key hashes the labels that tell parts apart.
func (s *sheet) key(labels []byte) uint64 {
	h := hash(fnvBasis, nil)
	for name, value := range pairs(labels) {
		if !slices.Contains(s.copies, string(name)) && !slices.Contains(s.kinds, string(name)) {
			h = hash(hash(h, name), value)
		}
	}
	return h
}

const (
	fnvBasis = 14695981039346656037
	fnvPrime = 1099511628211
)

// hash continues h (FNV-1a) with b and an end mark.
func hash(h uint64, b []byte) uint64 {
	for _, c := range b {
		h = (h ^ uint64(c)) * fnvPrime
	}
	return (h ^ 0xff) * fnvPrime
}

func (s *sheet) said(q quantity) bool { return len(s.tallies[q]) > 0 }

// instead uses an old name's tally where the new name says nothing.
func (s *sheet) instead(q, old quantity) {
	if !s.said(q) {
		s.tallies[q] = s.tallies[old]
	}
}

// onto puts what was gathered on top of the last reading.
func (s *sheet) onto(last Reading, now time.Time) Reading {
	r := last
	s.instead(qUsage, qOldUsage)
	s.instead(qQueries, qOldQueries)
	s.instead(qHits, qOldHits)
	s.contradictions()
	s.cache(&r)
	for _, d := range []struct {
		q   quantity
		dst *int64
	}{{qRunning, &r.Running}, {qWaiting, &r.Waiting}, {qSlots, &r.Slots}, {qMaxAdapters, &r.MaxAdapters}} {
		if s.said(d.q) {
			*d.dst = int64(math.Round(s.tallies[d.q].sum()))
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
		if s.said(d.q) {
			*d.dst = s.tallies[d.q].sum()
		}
	}
	if s.said(qAsleep) {
		r.Asleep = s.tallies[qAsleep].sum() > 0
	}
	if s.adapters.heard {
		r.Adapters = s.adapters.names()
	}
	if s.said(qRunning) || s.said(qWaiting) {
		r.LoadAt = now
	}
	r.Ignored += s.ignored
	r.At = now
	return r
}

// contradictions leaves out what cannot be true together.
func (s *sheet) contradictions() {
	if s.said(qHits) && (!s.said(qQueries) || s.tallies[qHits].sum() > s.tallies[qQueries].sum()) {
		s.tallies[qHits], s.tallies[qQueries] = nil, nil
		s.ignored++
	}
}

// cache takes the KV cache's size and use.
func (s *sheet) cache(r *Reading) {
	if s.said(qUsage) {
		r.KVUsage, r.KVSaid = min(s.tallies[qUsage].mean(), 1), true
	}
	total := s.tallies[qKV].sum()
	for _, b := range s.tallies[qBlocks] {
		size, ok := s.tallies[qBlockSize].of(b.key)
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
