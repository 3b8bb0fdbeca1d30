package consensus

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Bounds of what a proposal of a drain reports.
const (
	maxDrainModels   = 64   // models of ModelShare
	maxUnserving     = 1000 // as many as a spec has regions
	wholeShare       = 1_000_000
	maxRefusedModels = 8 // models that a refusal names
)

// DrainRules holds the safety rules of a spec at one time, with the regions that they count. The rules are applied to
// a drain when its entry is applied, so two drains proposed at the same time through two nodes cannot both pass: the
// later entry is judged against the earlier one.
type DrainRules struct {
	MinRegions       int    // regions that a drain must leave in service; 0: no rule
	MinCapacityShare int64  // share of each model's capacity that a drain must leave, in parts per million; 0: no rule
	BlockedBy        string // the window that blocks drains at this time; empty: none
	Regions          []RuledRegion
}

// RuledRegion is a region of the spec.
type RuledRegion struct {
	Name  string
	Zones []string // empty: the spec lists none
}

// ModelShare is the share of a model's capacity in all regions, in parts per million. It is a whole number, so that
// every node computes the same sum.
type ModelShare struct {
	Model string `json:"model"`
	Share int64  `json:"ppm"`
}

// callDrainRules calls rules for a spec. A panic is a bug in the check of specs; it must not end the node.
func callDrainRules(rules func(spec []byte, at time.Time) DrainRules, spec []byte, at time.Time) (r DrainRules) {
	if rules == nil {
		return DrainRules{}
	}
	defer func() {
		if recover() != nil {
			r = DrainRules{}
		}
	}()
	return rules(spec, at)
}

// checkDrainRules returns the safety rule that refuses a drain. It depends on the state, the command and its time only.
// The lever and the rules of drills have no override.
func checkDrainRules(s *State, c command, r DrainRules) error {
	if s.StopLever != nil {
		return fmt.Errorf("drain of %s refused, and nothing is drained: all drills and drains are stopped by %s since %s: %s; `spillway drill allow --fleet` allows them again",
			c.Path, s.StopLever.Actor, s.StopLever.At.Format(time.RFC3339), s.StopLever.Reason)
	}
	if err := checkDrillRules(s, c); err != nil {
		return err
	}
	if c.OverrideRules {
		if strings.TrimSpace(c.Reason) == "" {
			return fmt.Errorf("drain of %s refused: --override-safety needs a reason for the audit log: add --reason", c.Path)
		}
		return nil
	}
	broken := ""
	switch before, after := s.drainsInForce(c.At, ""), s.drainsInForce(c.At, c.Path); {
	case r.BlockedBy != "":
		broken = r.BlockedBy
	case slices.ContainsFunc(before, func(d Drain) bool { return isBelow(c.Path, d.Path) }):
		return nil // what is drained already takes nothing more away
	default:
		broken = r.checkRegionsLeft(before, append(slices.Clip(after), Drain{Path: c.Path}), c.Unserving)
		if broken == "" {
			broken = r.checkCapacityLeft(before, after, c.Path, mergeDrainTakes(before, c.Path, c.Takes))
		}
	}
	if broken == "" {
		return nil
	}
	return fmt.Errorf("drain of %s refused, and nothing is drained: %s; end another drain, change safety in the spec, or drain with --override-safety and a --reason in an emergency", c.Path, broken)
}

// isBelow reports whether path is a zone or worker of above.
func isBelow(path, above string) bool { return strings.HasPrefix(path, above+"/") }

// checkRegionsLeft compares the regions in service before and after a drain. A minimum that was violated before does
// not refuse a drain that takes no region away.
func (r *DrainRules) checkRegionsLeft(before, after []Drain, unserving []string) string {
	was, left := r.countServing(before, unserving), r.countServing(after, unserving)
	if left >= r.MinRegions || left >= was {
		return ""
	}
	return fmt.Sprintf("%d of %d regions would remain in service, fewer than safety.min_regions (%d)", left, was, r.MinRegions)
}

func (r *DrainRules) countServing(drains []Drain, unserving []string) (n int) {
	drained := func(path string) bool {
		return slices.ContainsFunc(drains, func(d Drain) bool { return d.Path == path })
	}
	for i := range r.Regions {
		g := &r.Regions[i]
		if slices.Contains(unserving, g.Name) || drained(g.Name) {
			continue
		}
		if len(g.Zones) == 0 || slices.ContainsFunc(g.Zones, func(z string) bool { return !drained(g.Name + "/" + z) }) {
			n++
		}
	}
	return n
}

// checkCapacityLeft adds up what the drains in force and the new one take away. Each drain reports its share with its
// own entry, measured by its proposer: the reports of regions, which exclude drained workers a moment later, are not
// part of the log. takes is what the new drain takes, see mergeDrainTakes.
func (r *DrainRules) checkCapacityLeft(before, others []Drain, path string, takes []ModelShare) string {
	if r.MinCapacityShare == 0 {
		return ""
	}
	after := append(others, Drain{Path: path, Takes: takes})
	var short []string
	for _, m := range takes {
		taken := sumDrainTakes(after, m.Model)
		if left := wholeShare - taken; left < r.MinCapacityShare && taken > sumDrainTakes(before, m.Model) {
			short = append(short, fmt.Sprintf("%d %% for %s", max(left, 0)*100/wholeShare, m.Model))
		}
	}
	if len(short) == 0 {
		return ""
	}
	return fmt.Sprintf("the capacity that would remain is less than safety.min_capacity_share (%g): %s", float64(r.MinCapacityShare)/wholeShare, strings.Join(short[:min(len(short), maxRefusedModels)], ", "))
}

// sumDrainTakes returns the share of a model's capacity that drains take away. A drain below another one is part of it.
func sumDrainTakes(drains []Drain, model string) (sum int64) {
	for i := range drains {
		d := &drains[i]
		if !slices.ContainsFunc(drains, func(x Drain) bool { return isBelow(d.Path, x.Path) }) {
			sum += shareOfModel(d.Takes, model)
		}
	}
	return sum
}

func shareOfModel(takes []ModelShare, model string) int64 {
	if at := slices.IndexFunc(takes, func(m ModelShare) bool { return m.Model == model }); at >= 0 {
		return takes[at].Share
	}
	return 0
}

// mergeDrainTakes returns what a drain takes away, including the drains in force below its path, whose workers its
// proposer no longer saw: when those end first, this one still has all of it. A drain that replaces another of the same
// path takes no less, because the workers may have been hidden by it. Both may count too much and never too little.
func mergeDrainTakes(drains []Drain, path string, reported []ModelShare) []ModelShare {
	out := slices.Clone(reported)
	var same []ModelShare
	for i := range drains {
		d := &drains[i]
		switch {
		case d.Path == path:
			same = d.Takes
		case isBelow(d.Path, path) && !slices.ContainsFunc(drains, func(x Drain) bool { return x.Path != path && isBelow(d.Path, x.Path) }):
			for _, m := range d.Takes {
				out = addModelShare(out, m.Model, shareOfModel(out, m.Model)+m.Share)
			}
		}
	}
	for _, m := range same {
		out = addModelShare(out, m.Model, max(m.Share, shareOfModel(out, m.Model)))
	}
	return out
}

// addModelShare sets the share of a model, up to the whole, if there is room for another model.
func addModelShare(list []ModelShare, model string, share int64) []ModelShare {
	m := ModelShare{Model: model, Share: min(share, wholeShare)}
	if at := slices.IndexFunc(list, func(x ModelShare) bool { return x.Model == model }); at >= 0 {
		list[at] = m
		return list
	}
	if len(list) >= maxDrainModels {
		return list
	}
	return append(list, m)
}

// checkDrillRules checks a drain of a drill: it ends by itself, and no other change of the fleet is under way. A drain
// without a drill is never refused because of a drill.
func checkDrillRules(s *State, c command) error {
	if c.Drill == "" {
		return nil
	}
	refused := func(format string, args ...any) error {
		return fmt.Errorf("drill %s refused, and nothing is drained: %s", c.Drill, fmt.Sprintf(format, args...))
	}
	switch {
	case c.OverrideRules:
		return refused("a drill cannot override safety rules: leave out --override-safety")
	case c.Until.IsZero():
		return refused("a drain of a drill must end by itself: add --for")
	case s.Rollout != nil:
		return refused("a spec is staged %s (stage %d): promote it or roll it back first", s.Rollout.describeRegions(), s.Rollout.Number)
	}
	for _, d := range s.drainsInForce(c.At, "") {
		switch d.Drill {
		case c.Drill:
		case "":
			return refused("%s is drained by %s: end that drain with `spillway undrain` first", d.Path, d.Actor)
		default:
			return refused("drill %s is in progress (%s is drained by %s), and one runs at a time: wait for its end", d.Drill, d.Path, d.Actor)
		}
	}
	return nil
}

// checkDrainReport bounds what a proposal of a drain reports.
func checkDrainReport(c *command) error {
	if len(c.Takes) > maxDrainModels || len(c.Unserving) > maxUnserving || len(c.Drill) > maxName {
		return fmt.Errorf("a drain reports at most %d models and %d regions, and the name of a drill has at most %d bytes", maxDrainModels, maxUnserving, maxName)
	}
	if slices.ContainsFunc(c.Unserving, func(name string) bool { return len(name) > maxName }) {
		return errors.New("a name of a region in a drain's report is too long")
	}
	for _, m := range c.Takes {
		if len(m.Model) > maxName || m.Share < 0 || m.Share > wholeShare {
			return errors.New("a share of a model in a drain's report is malformed")
		}
	}
	return nil
}
