package load

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// LoadReport is the result of a run so far. Every request that was sent is in exactly one of OK, Refused, Cut, Lost,
// NoAddress, Abandoned and InFlight.
type LoadReport struct {
	Elapsed time.Duration
	// Sent counts requests that were sent; Skipped those that were due while too many were in flight.
	Sent, Skipped uint64
	// OK counts complete answers.
	OK uint64
	// Refused counts answers with a status other than 200; Codes lists them.
	Refused uint64
	// Cut counts answers that began and did not end properly.
	Cut uint64
	// Lost counts requests without any byte of an answer, after all retries.
	Lost uint64
	// NoAddress counts requests for which the name had no address.
	NoAddress uint64
	// Abandoned counts requests that were cut at the end of the run.
	Abandoned uint64
	// InFlight counts requests without an outcome yet.
	InFlight uint64
	// Retried is how often a request was sent elsewhere before its first byte; Redirected how often it followed a
	// redirect.
	Retried, Redirected uint64
	// Lag is how late requests were sent. A large value means that the generator, not the target, was too slow.
	Lag LatencySummary
	// Codes are refusals and cuts by status and code, most frequent first.
	Codes []CodeCount
	// Regions are counts by the answering region, by name; "-" if the answer named none.
	Regions []RegionReport
	// DNS counts the activity of the stub resolvers.
	DNS DNSReport
}

// LatencySummary is percentiles of a latency.
type LatencySummary struct {
	Count              uint64
	P50, P90, P99, Max time.Duration
}

// CodeCount counts refusals or cuts of one kind.
type CodeCount struct {
	Outcome string // "refused" or "cut"
	Status  int
	Code    string
	Count   uint64
}

// RegionReport is the results of one region.
type RegionReport struct {
	Name             string
	OK, Refused, Cut uint64
	PromptTokens     uint64
	OutputTokens     uint64
	// TTFT is from when a request was due to its first token, for streams; ITL between tokens; Total to the last
	// byte. Only complete answers count for TTFT and Total.
	TTFT, ITL, Total LatencySummary
}

// DNSReport counts queries and resolutions. A resolution tries one server after the other, so a failed query is not
// necessarily a failed resolution.
type DNSReport struct {
	Queries, FailedQueries         uint64
	Resolutions, FailedResolutions uint64
	Cached                         uint64
}

// CurrentReport returns the counts so far. It may be called during Run.
func (g *Generator) CurrentReport() *LoadReport {
	s := g.stats
	end := func(v outcomeKind) uint64 { return s.outcomes[v].Load() }
	r := &LoadReport{
		Elapsed: s.elapsedTime(time.Now()), Skipped: s.skipped.Load(),
		OK: end(outcomeOK), Refused: end(outcomeRefused), Cut: end(outcomeCut), Lost: end(outcomeLost), NoAddress: end(outcomeNoAddress), Abandoned: end(outcomeAbandoned),
		Retried: s.retried.Load(), Redirected: s.redirected.Load(), Lag: s.lag.summarizeLatency(),
		DNS: DNSReport{
			Queries: s.dns.queries.Load(), FailedQueries: s.dns.failedQueries.Load(),
			Resolutions: s.dns.lookups.Load(), FailedResolutions: s.dns.failedLookups.Load(), Cached: s.dns.cached.Load(),
		},
	}
	r.Sent = s.sent.Load() // after the outcomes: none of them can be of a request that is not counted here
	r.InFlight = r.Sent - r.OK - r.Refused - r.Cut - r.Lost - r.NoAddress - r.Abandoned
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, n := range s.codes {
		r.Codes = append(r.Codes, CodeCount{Outcome: k.outcome.String(), Status: k.status, Code: k.code, Count: n})
	}
	slices.SortFunc(r.Codes, func(a, b CodeCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Status, b.Status), cmp.Compare(a.Code, b.Code))
	})
	for _, name := range slices.Sorted(maps.Keys(s.regions)) {
		if region := s.regions[name].makeReport(name); region.OK+region.Refused+region.Cut > 0 {
			r.Regions = append(r.Regions, region)
		}
	}
	return r
}

// CountErrors returns the number of requests without a complete answer, except those that the generator ended.
func (r *LoadReport) CountErrors() uint64 { return r.Refused + r.Cut + r.Lost + r.NoAddress }

func (v outcomeKind) String() string {
	return [...]string{"ok", "refused", "cut", "lost", "nowhere", "abandoned"}[v]
}

func (s *regionStats) makeReport(name string) RegionReport {
	return RegionReport{
		Name: name, OK: s.outcomes[outcomeOK].Load(), Refused: s.outcomes[outcomeRefused].Load(), Cut: s.outcomes[outcomeCut].Load(),
		PromptTokens: s.prompt.Load(), OutputTokens: s.output.Load(),
		TTFT: s.ttft.summarizeLatency(), ITL: s.itl.summarizeLatency(), Total: s.total.summarizeLatency(),
	}
}

func (h *latencyHistogram) summarizeLatency() LatencySummary {
	q := h.readQuantiles(0.5, 0.9, 0.99)
	return LatencySummary{Count: h.totalCount(), P50: q[0], P90: q[1], P99: q[2], Max: time.Duration(h.longest.Load())}
}
