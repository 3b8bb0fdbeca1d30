package load

import (
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

// CountErrors returns the number of requests without a complete answer, except those that the generator ended.
func (r *LoadReport) CountErrors() uint64 { return r.Refused + r.Cut + r.Lost + r.NoAddress }

func (v outcomeKind) String() string {
	return [...]string{"ok", "refused", "cut", "lost", "nowhere", "abandoned"}[v]
}
