package load

import (
	"strings"
	"testing"
	"time"
)

func TestReportTables(t *testing.T) {
	spread := func(ms int) LatencySummary {
		d := time.Duration(ms) * time.Millisecond
		return LatencySummary{Count: 10, P50: d, P90: 2 * d, P99: 3 * d, Max: 4 * d}
	}
	r := &LoadReport{
		Elapsed: 10 * time.Second, Sent: 1234, OK: 1200, Refused: 30, Cut: 3, Lost: 1, Retried: 7, Redirected: 5, Lag: spread(1),
		Codes: []CodeCount{{"refused", 429, "requests_per_minute", 30}, {"cut", 200, "connection", 3}},
		Regions: []RegionReport{
			{Name: "frankfurt", OK: 1000, TTFT: spread(40), ITL: spread(7), Total: spread(900), PromptTokens: 500000, OutputTokens: 64000},
			{Name: "tokyo", OK: 200, Refused: 30, Cut: 3, Total: spread(1200), PromptTokens: 1000, OutputTokens: 900},
		},
		DNS: DNSReport{Queries: 12, FailedQueries: 1, Resolutions: 10, Cached: 1224},
	}
	var b strings.Builder
	if err := r.WriteTables(&b); err != nil {
		t.Fatal(err)
	}
	const want = `1234 requests sent in 10s: 1200 ok, 30 refused, 3 cut mid-stream, 1 lost, 0 without an address
7 retried elsewhere before the first byte, 5 redirected; left late by p99 3.0 ms, max 4.0 ms

     region    ok  refused  cut  TTFT p50 ms  p90 ms  p99 ms  ITL p50 ms  p90 ms  p99 ms  total p50 s  p99 s  prompt tok/s  output tok/s
  frankfurt  1000        0    0         40.0    80.0   120.0         7.0    14.0    21.0         0.90   2.70         50000          6400
      tokyo   200       30    3            -       -       -           -       -       -         1.20   3.60           100            90

  outcome  status                 code  requests
  refused     429  requests_per_minute        30
      cut     200           connection         3

dns: 12 queries, 1 failed; 10 resolutions, 0 failed; 1224 requests used a cached answer
`
	if b.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", b.String(), want)
	}
}
