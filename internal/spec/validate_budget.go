package spec

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// maxLimit bounds limits, so that thousandths of them are exact.
const maxLimit = 1 << 40

func (j *judge) budget(b *Budget, path string) {
	if b.TokensPerDay < 0 || b.TokensPerDay > maxLimit {
		j.bad(path+".tokens_per_day", fmt.Sprintf("tokens_per_day %d is out of range", b.TokensPerDay), "write tokens, or leave it out for no limit")
	}
	if !(b.DollarsPerDay >= 0 && b.DollarsPerDay <= 1e9) {
		j.bad(path+".dollars_per_day", fmt.Sprintf("dollars_per_day %v is out of range", b.DollarsPerDay), "write dollars, or leave it out for no limit")
	}
	if b.WhenSpent != SpentStop && b.WhenSpent != SpentThrottle {
		j.bad(path+".when_spent", fmt.Sprintf("unknown word %q", b.WhenSpent), strict.Suggest(b.WhenSpent, []string{SpentStop, SpentThrottle}, "words"))
	}
	j.between(path+".day_offset", "day_offset", b.DayOffset, -14*time.Hour, 14*time.Hour)
}

func (j *judge) price(p *Price, path string) {
	j.number(path+".prompt", "the price", p.Prompt, 0, 1e6)
	j.number(path+".cached", "the price", p.Cached, 0, 1e6)
	j.number(path+".completion", "the price", p.Completion, 0, 1e6)
}

// timedKeys judges hashed keys that hold for a time. No message shows any part of one.
func (j *judge) timedKeys(list []TimedKey, path string) {
	for i := range list {
		k, at := &list[i], item(path)(i)
		if _, ok := parseKeyHash(k.Hash); !ok {
			reason, hint := badKey(k.Hash)
			j.bad(at+".hash", reason, hint)
		}
		if from, to := k.NotBefore.At(), k.NotAfter.At(); !to.IsZero() && !to.After(from) {
			j.bad(at+".not_after", "the key ends before it begins", "write a later moment than not_before")
		}
	}
}

// allKeys are the hashes of the tenant's keys, those that hold for a time last.
func (t *Tenant) allKeys() []string {
	out := slices.Clone(t.Keys)
	for i := range t.TimedKeys {
		out = append(out, t.TimedKeys[i].Hash)
	}
	return out
}

// Moment is a point in time, written as "2026-01-31T00:00:00Z"; empty: none.
type Moment string

// At is the moment; zero for none.
func (m Moment) At() time.Time {
	t, _ := time.Parse(time.RFC3339, string(m)) // UnmarshalText has looked at it
	return t
}

// MarshalText writes the moment.
func (m Moment) MarshalText() ([]byte, error) { return []byte(m), nil }

// UnmarshalText reads a moment with its zone.
func (m *Moment) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*m = ""
		return nil
	}
	v, err := time.Parse(time.RFC3339, strings.TrimSpace(string(b)))
	if err != nil || v.Year() < 1970 {
		return &strict.Hinted{Reason: "this is not a moment", Hint: "write a date, a time and a zone, such as 2026-01-31T00:00:00Z"}
	}
	*m = Moment(v.UTC().Format(time.RFC3339))
	return nil
}
