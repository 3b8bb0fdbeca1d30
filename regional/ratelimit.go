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
	var l limitLines
	if lim.RequestsPerMinute > 0 {
		l.number("X-Ratelimit-Limit-Requests", lim.RequestsPerMinute)
		l.number("X-Ratelimit-Remaining-Requests", left.Requests)
		l.time("X-Ratelimit-Reset-Requests", left.ResetRequests)
	}
	if lim.TokensPerMinute > 0 {
		l.number("X-Ratelimit-Limit-Tokens", lim.TokensPerMinute)
		l.number("X-Ratelimit-Remaining-Tokens", left.Tokens)
		l.time("X-Ratelimit-Reset-Tokens", left.ResetTokens)
	}
	l.set(h)
}

// limitLines are headers whose values lie in one piece of memory.
type limitLines struct {
	n     int
	names [6]string
	ends  [6]int
	text  [192]byte
}

func (l *limitLines) number(name string, v int) {
	l.add(name, len(strconv.AppendInt(l.text[:l.end()], int64(v), 10)))
}

func (l *limitLines) time(name string, d time.Duration) {
	l.add(name, len(append(l.text[:l.end()], d.Round(time.Millisecond).String()...)))
}

func (l *limitLines) end() int {
	if l.n == 0 {
		return 0
	}
	return l.ends[l.n-1]
}

func (l *limitLines) add(name string, end int) {
	l.names[l.n], l.ends[l.n] = name, end
	l.n++
}

func (l *limitLines) set(h http.Header) {
	if l.n == 0 {
		return
	}
	text, from := string(l.text[:l.end()]), 0
	values := make([]string, l.n)
	for i := range l.n {
		values[i] = text[from:l.ends[i]]
		h[l.names[i]] = values[i : i+1 : i+1]
		from = l.ends[i]
	}
}
