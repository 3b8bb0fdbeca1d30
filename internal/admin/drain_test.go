package admin

import (
	"strings"
	"testing"
	"time"
)

// TestInvalidDrainTimesAreRefused: invalid durations of a drain are refused with a correction.
func TestInvalidDrainTimesAreRefused(t *testing.T) {
	year := (366 * 24 * time.Hour).Milliseconds()
	for _, c := range []struct {
		name        string
		forMS, over int64
		want        string // empty: accepted
	}{
		{"until undrained", 0, 0, ""},
		{"an end", 1000, 0, ""},
		{"gradual", 0, 1000, ""},
		{"gradual with an end", 2000, 1000, ""},
		{"the longest", year, year - 1, ""},
		{"a negative end", -1, 0, "the duration of a drain is negative"},
		{"negative and gradual", 0, -1, "the duration of a drain is negative"},
		{"too long", year + 1, 0, "too long: the longest is 366 days"},
		{"too gradual", 0, year + 1, "too long: the longest is 366 days"},
		{"an end that overflows", 1<<63 - 1, 0, "too long: the longest is"},
		{"an end before the end of over", 1000, 2000, "the drain ends after 1s, before its traffic has decreased to zero over 2s"},
		{"an end at the end of over", 1000, 1000, "the drain ends after 1s, before its traffic has decreased to zero over 1s"},
	} {
		err := (&DrainRequest{Path: "tokyo", ForMS: c.forMS, OverMS: c.over}).checkTimes()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "omit the time")):
			t.Errorf("%s: %v, want %q and a correction", c.name, err, c.want)
		}
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := DrainRequest{Path: "tokyo", ForMS: 2000, OverMS: 1000, Reason: "power"}
	d := r.NewDrain("uid:7", now)
	if !d.Until.Equal(now.Add(2*time.Second)) || d.RampDuration() != time.Second || d.TrafficShare(now.Add(time.Second/2)) != 0.5 || d.Actor != "uid:7" || d.Reason != "power" {
		t.Errorf("%+v", d)
	}
}
