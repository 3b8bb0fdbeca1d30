package spec

import (
	"fmt"
	"slices"
	"time"
)

// safetyValidator checks the safety rules.
type safetyValidator struct{ *validation }

func (v *safetyValidator) checkSafety() {
	const path = "$.safety"
	s := &v.spec.Safety
	if n := len(v.regions); s.MinRegions < 0 || s.MinRegions > 0 && s.MinRegions >= max(n, 1) {
		v.addProblem(path+".min_regions", fmt.Sprintf("min_regions %d is out of range: the spec has %d regions", s.MinRegions, n), "write fewer than there are regions, so that one can be drained, or 0 for no rule")
	}
	if !(s.MinCapacityShare >= 0 && s.MinCapacityShare < 1) {
		v.addProblem(path+".min_capacity_share", fmt.Sprintf("min_capacity_share %v is out of range", s.MinCapacityShare), "write a part of the capacity from 0 (no rule) to less than 1, such as 0.5")
	}
	windows := path + ".blocked_windows"
	if n := len(s.BlockedWindows); n > maxBlockedWindows {
		v.addProblem(windows, fmt.Sprintf("there are %d windows, more than %d", n, maxBlockedWindows), "a window may list several days")
	}
	for i := range s.BlockedWindows {
		v.checkBlockedWindow(&s.BlockedWindows[i], itemPath(windows)(i))
	}
	v.checkUnique("window", namesOf(s.BlockedWindows, func(w *BlockedWindow) string { return w.Name }), itemNamePath(windows))
}

func (v *safetyValidator) checkBlockedWindow(w *BlockedWindow, path string) {
	if why := nameProblem(w.Name); why != "" {
		v.addProblem(path+".name", "window: "+why, nameHint)
	}
	from, fromOK := parseMinuteOfDay(w.From)
	to, toOK := parseMinuteOfDay(w.To)
	const hint = `write hours and minutes in UTC, such as "08:00"; "24:00" is the end of the day`
	if !fromOK {
		v.addProblem(path+".from", fmt.Sprintf("from %q is no time of day", w.From), hint)
	}
	if !toOK {
		v.addProblem(path+".to", fmt.Sprintf("to %q is no time of day", w.To), hint)
	}
	if fromOK && toOK && from >= to {
		v.addProblem(path+".to", fmt.Sprintf("the window ends at %s, not after %s when it begins", w.To, w.From), "for a window over midnight write two: one to 24:00 and one from 00:00")
	}
	if len(w.Days) > maxWindowDays {
		v.addProblem(path+".days", fmt.Sprintf("there are %d days, more than %d", len(w.Days), maxWindowDays), "write several windows")
	}
	for i, day := range w.Days {
		if _, err := time.Parse(time.DateOnly, day); err != nil && !slices.Contains(weekdays[:], day) {
			v.addProblem(itemPath(path+".days")(i), fmt.Sprintf("%q is no day", day), `write mon, tue, wed, thu, fri, sat, sun or a date such as "2026-12-24"`)
		}
	}
	v.checkUnique("day", w.Days, itemPath(path+".days"))
}
