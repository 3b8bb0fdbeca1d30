package regional

import (
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional/tenant"
)

// limitHeaders tells the caller what is left, in the headers that OpenAI's clients read. Durations are written as Go
// does ("12ms", "6m0s"), which is how theirs look.
func limitHeaders(h http.Header, lim spec.Limits, left tenant.Left) {
	if lim.RequestsPerMinute > 0 {
		h.Set("X-Ratelimit-Limit-Requests", strconv.Itoa(lim.RequestsPerMinute))
		h.Set("X-Ratelimit-Remaining-Requests", strconv.Itoa(left.Requests))
		h.Set("X-Ratelimit-Reset-Requests", left.ResetRequests.Round(time.Millisecond).String())
	}
	if lim.TokensPerMinute > 0 {
		h.Set("X-Ratelimit-Limit-Tokens", strconv.Itoa(lim.TokensPerMinute))
		h.Set("X-Ratelimit-Remaining-Tokens", strconv.Itoa(left.Tokens))
		h.Set("X-Ratelimit-Reset-Tokens", left.ResetTokens.Round(time.Millisecond).String())
	}
}
