package drill

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// durationUnits are the units of times, as written in files.
var durationUnits = map[string]time.Duration{"us": time.Microsecond, "ms": time.Millisecond, "s": time.Second, "min": time.Minute}

// maxDuration bounds times in files.
const maxDuration = time.Hour

// splitUnit divides a word into its number and what follows; false when it does not begin with a number.
func splitUnit(word string) (v float64, unit string, ok bool) {
	end := strings.IndexFunc(word, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(word)
	}
	if end == 0 || end > 18 {
		return 0, "", false
	}
	v, err := strconv.ParseFloat(word[:end], 64)
	if err != nil || math.IsInf(v, 0) {
		return 0, "", false
	}
	return v, word[end:], true
}

// toDuration converts a number of units, rounded to a microsecond; false beyond maxDuration.
func toDuration(v float64, unit time.Duration) (time.Duration, bool) {
	ns := math.Round(v*float64(unit)/1000) * 1000
	if ns > float64(maxDuration) {
		return 0, false
	}
	return time.Duration(ns), true
}

// formatTime formats a duration in the largest unit that makes it a short number: 30 s, 150 ms, 2.5 s.
func formatTime(d time.Duration) string {
	switch {
	case d == 0:
		return "0 s"
	case d%time.Minute == 0 && d >= 2*time.Minute:
		return strconv.FormatInt(int64(d/time.Minute), 10) + " min"
	case d%(100*time.Millisecond) == 0 && d >= time.Second:
		return formatNumber(d.Seconds()) + " s"
	case d%time.Millisecond == 0:
		return strconv.FormatInt(int64(d/time.Millisecond), 10) + " ms"
	}
	return strconv.FormatInt(int64(d/time.Microsecond), 10) + " us"
}

// formatNumber formats a number without trailing zeros or exponent.
func formatNumber(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// formatShare formats a fraction as a percentage. Fractions are read by fromPercent, so that no digit is lost.
func formatShare(v float64) string {
	return strconv.FormatFloat(math.Round(v*1e8)/1e6, 'f', -1, 64) + " %"
}

// fromPercent converts a percentage to a fraction, rounded to 1e-8.
func fromPercent(v float64) float64 { return math.Round(v*1e6) / 1e8 }

// formatMoment formats a measured time.
func formatMoment(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s" }
