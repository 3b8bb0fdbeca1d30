package load

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Report says what came of a run so far. Every request that was sent is in exactly one of OK, Refused, Cut, Lost,
// Nowhere, Abandoned and InFlight.
type Report struct {
	Elapsed time.Duration
	// Sent is requests that left; Skipped were due while too many were in flight.
	Sent, Skipped uint64
	// OK is whole answers.
	OK uint64
	// Refused is answers with a status other than 200; Codes says which.
	Refused uint64
	// Cut is answers that began and did not end as they should.
	Cut uint64
	// Lost is requests of which no byte of an answer came, after all retries.
	Lost uint64
	// Nowhere is requests for which the name had no address.
	Nowhere uint64
	// Abandoned is requests that the end of the run cut.
	Abandoned uint64
	// InFlight is requests without an outcome yet.
	InFlight uint64
	// Retried is how often a request was sent elsewhere before its first byte; Redirected how often it was told to go elsewhere.
	Retried, Redirected uint64
	// Lag is how late requests left. A large one means that the generator, not the target, was too slow.
	Lag Spread
	// Codes are refusals and cuts by status and code, most frequent first.
	Codes []Code
	// Regions are counts by the region that answered, by name; "-" where the answer named none.
	Regions []Region
	// DNS is what the stub resolvers did.
	DNS DNS
}

// Spread is percentiles of a latency.
type Spread struct {
	Count              uint64
	P50, P90, P99, Max time.Duration
}

// Code counts one way of being refused or cut.
type Code struct {
	Outcome string // "refused" or "cut"
	Status  int
	Code    string
	Count   uint64
}

// Region is what one region answered.
type Region struct {
	Name             string
	OK, Refused, Cut uint64
	PromptTokens     uint64
	OutputTokens     uint64
	// TTFT is from when a request was due to its first token, of streams; ITL between tokens; Total to the last byte.
	// Only whole answers count for TTFT and Total.
	TTFT, ITL, Total Spread
}

// DNS counts queries and resolutions. A resolution asks one server after the other, so that a failed query is not yet a
// failed resolution.
type DNS struct {
	Queries, FailedQueries         uint64
	Resolutions, FailedResolutions uint64
	Cached                         uint64
}

// Report returns the counts so far. It may be called while Run runs.
func (g *Generator) Report() *Report {
	s := g.stats
	end := func(v verdict) uint64 { return s.ends[v].Load() }
	r := &Report{
		Elapsed: s.elapsed(time.Now()), Skipped: s.skipped.Load(),
		OK: end(answered), Refused: end(refused), Cut: end(cut), Lost: end(lost), Nowhere: end(nowhere), Abandoned: end(abandoned),
		Retried: s.retried.Load(), Redirected: s.redirected.Load(), Lag: s.lag.spread(),
		DNS: DNS{
			Queries: s.dns.queries.Load(), FailedQueries: s.dns.failedQueries.Load(),
			Resolutions: s.dns.lookups.Load(), FailedResolutions: s.dns.failedLookups.Load(), Cached: s.dns.cached.Load(),
		},
	}
	r.Sent = s.sent.Load() // after the outcomes: none of them can be of a request not counted here
	r.InFlight = r.Sent - r.OK - r.Refused - r.Cut - r.Lost - r.Nowhere - r.Abandoned
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, n := range s.codes {
		r.Codes = append(r.Codes, Code{Outcome: k.verdict.String(), Status: k.status, Code: k.code, Count: n})
	}
	slices.SortFunc(r.Codes, func(a, b Code) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Status, b.Status), cmp.Compare(a.Code, b.Code))
	})
	for _, name := range slices.Sorted(maps.Keys(s.regions)) {
		if region := s.regions[name].report(name); region.OK+region.Refused+region.Cut > 0 {
			r.Regions = append(r.Regions, region)
		}
	}
	return r
}

// Errors returns how many requests had no whole answer through no doing of the generator.
func (r *Report) Errors() uint64 { return r.Refused + r.Cut + r.Lost + r.Nowhere }

func (v verdict) String() string {
	return [...]string{"ok", "refused", "cut", "lost", "nowhere", "abandoned"}[v]
}

func (s *regionStats) report(name string) Region {
	return Region{
		Name: name, OK: s.ends[answered].Load(), Refused: s.ends[refused].Load(), Cut: s.ends[cut].Load(),
		PromptTokens: s.prompt.Load(), OutputTokens: s.output.Load(),
		TTFT: s.ttft.spread(), ITL: s.itl.spread(), Total: s.full.spread(),
	}
}

func (h *histogram) spread() Spread {
	q := h.quantiles(0.5, 0.9, 0.99)
	return Spread{Count: h.count(), P50: q[0], P90: q[1], P99: q[2], Max: time.Duration(h.most.Load())}
}
