package load

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxRegionRows and the next constant bound the rows that answers can add to the tables.
	maxRegionRows = 256
	maxCodeRows   = 256
	// otherRow collects everything beyond the bounds.
	otherRow = "other"
)

// loadStats are a run's counts.
type loadStats struct {
	sent, skipped, retried, redirected atomic.Uint64
	outcomes                           [numOutcomes]atomic.Uint64
	lag                                latencyHistogram
	dns                                dnsCounts
	started, ended                     atomic.Int64 // unix nanoseconds

	mu      sync.Mutex
	regions map[string]*regionStats
	codes   map[codeKey]uint64
}

// codeKey identifies a kind of refusal or cut.
type codeKey struct {
	outcome outcomeKind
	status  int
	code    string
}

// regionStats are the counts of one region's answers.
type regionStats struct {
	outcomes         [numOutcomes]atomic.Uint64
	prompt, output   atomic.Uint64 // tokens
	ttft, itl, total latencyHistogram
}

func newLoadStats() *loadStats {
	return &loadStats{regions: map[string]*regionStats{}, codes: map[codeKey]uint64{}}
}

func (s *loadStats) setStarted(now time.Time) { s.started.Store(now.UnixNano()) }
func (s *loadStats) setEnded(now time.Time)   { s.ended.Store(now.UnixNano()) }

// elapsedTime is the duration of the run so far.
func (s *loadStats) elapsedTime(now time.Time) time.Duration {
	started, ended := s.started.Load(), s.ended.Load()
	switch {
	case started == 0:
		return 0
	case ended == 0:
		ended = now.UnixNano()
	}
	return time.Duration(ended - started)
}

func (s *loadStats) regionFor(name string) *regionStats {
	if name == "" {
		name = "-"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.regions[name]; r != nil {
		return r
	}
	if len(s.regions) >= maxRegionRows {
		name = otherRow
		if r := s.regions[name]; r != nil {
			return r
		}
	}
	r := &regionStats{}
	s.regions[name] = r
	return r
}

// countRequest counts one request, once. Only complete answers count for latency; a refusal is never a fast answer.
func (s *loadStats) countRequest(r *requestResult, due, now time.Time, a *Arrival) {
	s.outcomes[r.outcome].Add(1)
	region := s.regionFor(r.region)
	region.outcomes[r.outcome].Add(1)
	region.output.Add(uint64(r.outputTokens))
	switch r.outcome {
	case outcomeRefused, outcomeCut:
		s.countCode(codeKey{r.outcome, r.status, r.code})
	case outcomeOK:
		if r.promptTokens == 0 {
			r.promptTokens = a.PromptTokens()
		}
		region.prompt.Add(uint64(r.promptTokens))
		region.total.addDuration(now.Sub(due))
		if !r.firstToken.IsZero() {
			region.ttft.addDuration(r.firstToken.Sub(due))
		}
	}
}

func (s *loadStats) countCode(k codeKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.codes[k]; !known && len(s.codes) >= maxCodeRows {
		k.code = otherRow
	}
	s.codes[k]++
}

func (s *regionStats) makeReport(name string) RegionReport {
	return RegionReport{
		Name: name, OK: s.outcomes[outcomeOK].Load(), Refused: s.outcomes[outcomeRefused].Load(), Cut: s.outcomes[outcomeCut].Load(),
		PromptTokens: s.prompt.Load(), OutputTokens: s.output.Load(),
		TTFT: s.ttft.summarizeLatency(), ITL: s.itl.summarizeLatency(), Total: s.total.summarizeLatency(),
	}
}
