package spec

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Safety holds the rules that the global nodes apply to every drain, of operators, drills and switches alike. The
// replicated state applies them when a drain takes its place in the log, so two drains that are requested at the same
// time cannot both pass. --force does not override them; --override-safety does, and the audit log records it.
type Safety struct {
	// MinRegions is how many regions a drain must leave in service. Regions that are unreachable do not count.
	// Default 0: no rule.
	MinRegions int `yaml:"min_regions"`
	// MinCapacityShare is the fraction of each model's prefill rate in all regions that all drains together must
	// leave in use, 0..1. Each drain counts with the share measured when it was requested. Default 0: no rule.
	MinCapacityShare float64 `yaml:"min_capacity_share"`
	// BlockedWindows are the times at which nothing may be drained.
	BlockedWindows []BlockedWindow `yaml:"blocked_windows"`
}

// BlockedWindow is a time of day at which nothing may be drained, on some days. All times are UTC, so that every node
// decides alike.
type BlockedWindow struct {
	// Name identifies the window in messages.
	Name string `yaml:"name"`
	// Days are weekdays (mon, tue, wed, thu, fri, sat, sun) or dates ("2026-12-24"). Empty means every day.
	Days []string `yaml:"days"`
	// From is when the window begins, as "HH:MM" in UTC. Default "00:00".
	From string `yaml:"from" default:"00:00"`
	// To is when it ends, as "HH:MM" in UTC, later than from; "24:00" is the end of the day. Default "24:00".
	To string `yaml:"to" default:"24:00"`
}

// maxBlockedWindows and maxWindowDays bound the windows, which are compared with every drain.
const (
	maxBlockedWindows = 64
	maxWindowDays     = 64
)

// weekdays are the names of time.Weekday in blocked_windows.
var weekdays = [...]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// FindBlockedWindow returns the first window that covers a time; nil: none.
func (s *Safety) FindBlockedWindow(at time.Time) *BlockedWindow {
	for i := range s.BlockedWindows {
		if s.BlockedWindows[i].coversTime(at.UTC()) {
			return &s.BlockedWindows[i]
		}
	}
	return nil
}

func (w *BlockedWindow) coversTime(at time.Time) bool {
	from, ok := parseMinuteOfDay(w.From)
	to, ok2 := parseMinuteOfDay(w.To)
	minute := at.Hour()*60 + at.Minute()
	if !ok || !ok2 || minute < from || minute >= to {
		return false
	}
	return len(w.Days) == 0 || slices.Contains(w.Days, weekdays[at.Weekday()]) || slices.Contains(w.Days, at.Format(time.DateOnly))
}

// String returns the window as in messages.
func (w *BlockedWindow) String() string {
	days := "every day"
	if len(w.Days) > 0 {
		days = strings.Join(w.Days, ", ")
	}
	return fmt.Sprintf("%s (%s from %s to %s UTC)", w.Name, days, w.From, w.To)
}

// MinCapacityPPM returns MinCapacityShare in parts per million.
func (s *Safety) MinCapacityPPM() int64 { return int64(math.Round(s.MinCapacityShare * 1e6)) }

// parseMinuteOfDay parses "HH:MM" from 00:00 to 24:00.
func parseMinuteOfDay(text string) (minute int, ok bool) {
	if text == "24:00" {
		return 24 * 60, true
	}
	t, err := time.Parse("15:04", text)
	return t.Hour()*60 + t.Minute(), err == nil && len(text) == len("15:04")
}
