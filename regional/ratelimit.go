package regional

import (
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional/tenant"
)

// writeLimitHeaders writes the remaining limits into the headers that OpenAI's clients read. Durations have Go's
// format ("12ms", "6m0s"), which OpenAI uses too.
func writeLimitHeaders(h http.Header, lim spec.TenantLimits, left tenant.Remaining) {
	var l limitHeaderBuffer
	if lim.RequestsPerMinute > 0 {
		l.addNumber("X-Ratelimit-Limit-Requests", lim.RequestsPerMinute)
		l.addNumber("X-Ratelimit-Remaining-Requests", left.Requests)
		l.addDuration("X-Ratelimit-Reset-Requests", left.ResetRequests)
	}
	if lim.TokensPerMinute > 0 {
		l.addNumber("X-Ratelimit-Limit-Tokens", lim.TokensPerMinute)
		l.addNumber("X-Ratelimit-Remaining-Tokens", left.Tokens)
		l.addDuration("X-Ratelimit-Reset-Tokens", left.ResetTokens)
	}
	l.writeTo(h)
}

// limitHeaderBuffer holds headers whose values share one allocation.
type limitHeaderBuffer struct {
	count int
	names [6]string
	ends  [6]int
	text  [192]byte
}

func (l *limitHeaderBuffer) addNumber(name string, v int) {
	l.addHeader(name, len(strconv.AppendInt(l.text[:l.textEnd()], int64(v), 10)))
}

func (l *limitHeaderBuffer) addDuration(name string, d time.Duration) {
	l.addHeader(name, len(append(l.text[:l.textEnd()], d.Round(time.Millisecond).String()...)))
}

func (l *limitHeaderBuffer) textEnd() int {
	if l.count == 0 {
		return 0
	}
	return l.ends[l.count-1]
}

func (l *limitHeaderBuffer) addHeader(name string, end int) {
	l.names[l.count], l.ends[l.count] = name, end
	l.count++
}

func (l *limitHeaderBuffer) writeTo(h http.Header) {
	if l.count == 0 {
		return
	}
	text, from := string(l.text[:l.textEnd()]), 0
	values := make([]string, l.count)
	for i := range l.count {
		values[i] = text[from:l.ends[i]]
		h[l.names[i]] = values[i : i+1 : i+1]
		from = l.ends[i]
	}
}
