package spec

import (
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

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
		return &strict.HintedError{Reason: "this is not a time", Hint: "write a date, a time and a zone, such as 2026-01-31T00:00:00Z"}
	}
	*m = Timestamp(v.UTC().Format(time.RFC3339))
	return nil
}

// Duration is a time.Duration written as "20s" in YAML.
type Duration time.Duration

// String returns the duration in YAML form.
func (d Duration) String() string { return strict.FormatDuration(time.Duration(d)) }

// MarshalText returns the duration with its units.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText parses "250ms", "20s", "1h30m"; a number without a unit is an error.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := strict.ParseDuration(string(b))
	if err != nil {
		return err
	}
	*d = Duration(v)
	return nil
}
