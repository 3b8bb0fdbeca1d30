package load

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxRegions and maxCodes bound what answers can make the tables grow to.
	maxRegions = 256
	maxCodes   = 256
	// other stands for everything beyond the bounds.
	other = "other"
)

// stats are a run's counts.
type stats struct {
	sent, skipped, retried, redirected atomic.Uint64
	ends                               [verdicts]atomic.Uint64
	lag                                histogram
	dns                                dnsCounts
	started, ended                     atomic.Int64 // unix nanoseconds

	mu      sync.Mutex
	regions map[string]*regionStats
	codes   map[codeKey]uint64
}

// codeKey names a way of being refused or cut.
type codeKey struct {
	verdict verdict
	status  int
	code    string
}

// regionStats are the counts of what one region answered.
type regionStats struct {
	ends            [verdicts]atomic.Uint64
	prompt, output  atomic.Uint64 // tokens
	ttft, itl, full histogram
}

func newStats() *stats {
	return &stats{regions: map[string]*regionStats{}, codes: map[codeKey]uint64{}}
}

func (s *stats) begin(now time.Time) { s.started.Store(now.UnixNano()) }
func (s *stats) end(now time.Time)   { s.ended.Store(now.UnixNano()) }

// elapsed is how long the run has taken so far.
func (s *stats) elapsed(now time.Time) time.Duration {
	started, ended := s.started.Load(), s.ended.Load()
	switch {
	case started == 0:
		return 0
	case ended == 0:
		ended = now.UnixNano()
	}
	return time.Duration(ended - started)
}

func (s *stats) region(name string) *regionStats {
	if name == "" {
		name = "-"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.regions[name]; r != nil {
		return r
	}
	if len(s.regions) >= maxRegions {
		name = other
		if r := s.regions[name]; r != nil {
			return r
		}
	}
	r := &regionStats{}
	s.regions[name] = r
	return r
}

// book counts one request, once. Only answers that came whole count for latency; a refusal is never a fast answer.
func (s *stats) book(r *result, due, now time.Time, a *Arrival) {
	s.ends[r.verdict].Add(1)
	region := s.region(r.region)
	region.ends[r.verdict].Add(1)
	region.output.Add(uint64(r.output))
	switch r.verdict {
	case refused, cut:
		s.code(codeKey{r.verdict, r.status, r.code})
	case answered:
		if r.prompt == 0 {
			r.prompt = a.PromptTokens()
		}
		region.prompt.Add(uint64(r.prompt))
		region.full.add(now.Sub(due))
		if !r.first.IsZero() {
			region.ttft.add(r.first.Sub(due))
		}
	}
}

func (s *stats) code(k codeKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.codes[k]; !known && len(s.codes) >= maxCodes {
		k.code = other
	}
	s.codes[k]++
}
