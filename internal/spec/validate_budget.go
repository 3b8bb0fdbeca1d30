package spec

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// maxLimitValue bounds limits, so that thousandths of them are exact.
const maxLimitValue = 1 << 40

func (j *validator) checkBudget(b *Budget, path string) {
	if b.TokensPerDay < 0 || b.TokensPerDay > maxLimitValue {
		j.addProblem(path+".tokens_per_day", fmt.Sprintf("tokens_per_day %d is out of range", b.TokensPerDay), "write tokens, or leave it out for no limit")
	}
	if !(b.DollarsPerDay >= 0 && b.DollarsPerDay <= 1e9) {
		j.addProblem(path+".dollars_per_day", fmt.Sprintf("dollars_per_day %v is out of range", b.DollarsPerDay), "write dollars, or leave it out for no limit")
	}
	if b.WhenSpent != SpentStop && b.WhenSpent != SpentThrottle {
		j.addProblem(path+".when_spent", fmt.Sprintf("unknown word %q", b.WhenSpent), strict.SuggestName(b.WhenSpent, []string{SpentStop, SpentThrottle}, "words"))
	}
	j.checkDuration(path+".day_offset", "day_offset", b.DayOffset, -14*time.Hour, 14*time.Hour)
}

func (j *validator) checkPrice(p *Price, path string) {
	j.checkNumber(path+".prompt", "the price", p.Prompt, 0, 1e6)
	j.checkNumber(path+".cached", "the price", p.Cached, 0, 1e6)
	j.checkNumber(path+".completion", "the price", p.Completion, 0, 1e6)
}

// checkTimedKeys checks hashed keys with a validity period. No message shows any part of a key.
func (j *validator) checkTimedKeys(list []TimedKey, path string) {
	for i := range list {
		k, at := &list[i], itemPath(path)(i)
		if _, ok := parseKeyHash(k.Hash); !ok {
			reason, hint := keyProblem(k.Hash)
			j.addProblem(at+".hash", reason, hint)
		}
		if from, to := k.NotBefore.AsTime(), k.NotAfter.AsTime(); !to.IsZero() && !to.After(from) {
			j.addProblem(at+".not_after", "the key ends before it begins", "write a later moment than not_before")
		}
	}
}

// allKeys returns the hashes of the tenant's keys, timed keys last.
func (t *Tenant) allKeys() []string {
	out := slices.Clone(t.Keys)
	for i := range t.TimedKeys {
		out = append(out, t.TimedKeys[i].Hash)
	}
	return out
}

// Timestamp is a point in time, written as "2026-01-31T00:00:00Z"; empty: none.
type Timestamp string

// AsTime returns the time; zero for none.
func (m Timestamp) AsTime() time.Time {
	t, _ := time.Parse(time.RFC3339, string(m)) // validated by UnmarshalText
	return t
}

// MarshalText returns the timestamp.
func (m Timestamp) MarshalText() ([]byte, error) { return []byte(m), nil }

// UnmarshalText parses a timestamp with its zone.
func (m *Timestamp) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*m = ""
		return nil
	}
	v, err := time.Parse(time.RFC3339, strings.TrimSpace(string(b)))
	if err != nil || v.Year() < 1970 {
		return &strict.HintedError{Reason: "this is not a moment", Hint: "write a date, a time and a zone, such as 2026-01-31T00:00:00Z"}
	}
	*m = Timestamp(v.UTC().Format(time.RFC3339))
	return nil
}
