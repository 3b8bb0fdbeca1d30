package spec

import (
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

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
