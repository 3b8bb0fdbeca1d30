package consensus

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// testRules are rules for four regions with two zones each. Nothing may be drained in the minute after noon + 10 h.
func testRules(_ []byte, at time.Time) DrainRules {
	r := DrainRules{MinRegions: 2, MinCapacityShare: 400_000}
	for _, name := range []string{"ap", "eu", "sa", "us"} {
		r.Regions = append(r.Regions, RuledRegion{Name: name, Zones: []string{"a", "b"}})
	}
	if d := at.Sub(noon); d >= 10*time.Hour && d < 10*time.Hour+time.Minute {
		r.BlockedBy = "the window freeze"
	}
	return r
}

// drainFor is a drain that reports what its path has in a fleet whose regions have a quarter of the capacity each, and
// whose zones have half of their region. The region reports no drained zones.
func drainFor(s *State, path string, at time.Time) command {
	c := command{Kind: kindPutDrain, Path: path, Actor: "alice", At: at}
	share := int64(0)
	for _, zone := range []string{"a", "b"} {
		region, own, _ := strings.Cut(path, "/")
		i, drained := s.findDrain(region + "/" + zone)
		drained = drained && !s.Drains[i].hasExpired(at)
		if !drained && (own == "" || own == zone) {
			share += 125_000
		}
	}
	if share > 0 {
		c.Takes = []ModelShare{{Model: "m", Share: share}}
	}
	return c
}

// servedCapacity is the capacity and the number of the regions that serve, worked out from the drains alone.
func servedCapacity(s *State, at time.Time) (share int64, regions int) {
	drained := func(path string) bool {
		i, found := s.findDrain(path)
		return found && !s.Drains[i].hasExpired(at)
	}
	for _, g := range testRules(nil, at).Regions {
		zones := 0
		for _, z := range g.Zones {
			if !drained(g.Name) && !drained(g.Name+"/"+z) {
				zones++
			}
		}
		if share += int64(zones) * 125_000; zones > 0 {
			regions++
		}
	}
	return share, regions
}

// applyOne applies a command as the next entry.
func applyOne(t rapid.TB, s *State, c command) (*State, commandResult) {
	t.Helper()
	data, err := encodeCommand(c)
	if err != nil {
		t.Fatal(err)
	}
	return applyEntry(s, logEntry{index: s.Index + 1, term: 1, data: data}, stateChecks{drainRules: testRules})
}

// TestDrainRulesHoldInEveryOrder applies random drains, undrains, expiries and moves of the lever: no accepted drain
// leaves less than the rules demand, and a refused entry changes nothing.
func TestDrainRulesHoldInEveryOrder(t *testing.T) {
	paths := []string{"ap", "eu", "sa", "us", "ap/a", "ap/b", "eu/a", "eu/b", "us/a"}
	rapid.Check(t, func(t *rapid.T) {
		s := &State{}
		at := noon
		accepted := 0
		for range rapid.IntRange(1, 40).Draw(t, "entries") {
			at = at.Add(time.Minute)
			path := rapid.SampledFrom(paths).Draw(t, "path")
			c := drainFor(s, path, at)
			switch rapid.IntRange(0, 9).Draw(t, "kind") {
			case 0, 1:
				c = command{Kind: kindDeleteDrain, Path: path, At: at}
			case 2:
				c = command{Kind: kindExpireDrains, At: at}
			case 3:
				c = command{Kind: kindStopLever, Action: rapid.SampledFrom([]string{actionStopAll, actionAllow, actionAllow}).Draw(t, "lever"), Reason: "x", At: at}
			case 4:
				c.Until = at.Add(time.Duration(rapid.IntRange(1, 5).Draw(t, "for")) * time.Minute)
			case 5:
				c.Drill, c.Until = rapid.SampledFrom([]string{"one", "two"}).Draw(t, "drill"), at.Add(3*time.Minute)
			}
			shareBefore, regionsBefore := servedCapacity(s, at)
			next, r := applyOne(t, s, c)
			share, regions := servedCapacity(next, at)
			switch {
			case r.Code != codeOK:
				stay := *s
				stay.Index, stay.Term = next.Index, next.Term
				if stay.Hash() != next.Hash() {
					t.Fatal("a refused entry changed the state")
				}
			case c.Kind == kindPutDrain:
				accepted++
				if s.StopLever != nil || share < 400_000 && share < shareBefore || regions < 2 && regions < regionsBefore {
					t.Fatalf("%s was drained with the lever at %v: %d regions and %d ppm remain of %d and %d", path, s.StopLever, regions, share, regionsBefore, shareBefore)
				}
				checkOneDrill(t, next, c)
			}
			s = next
		}
		checkRoundTrip(t, s)
	})
}

// checkOneDrill checks that a drain of a drill is alone with those of the same drill.
func checkOneDrill(t *rapid.T, s *State, c command) {
	for _, d := range s.drainsInForce(c.At, "") {
		if c.Drill != "" && d.Drill != c.Drill {
			t.Fatalf("drill %s drains %s while %s is drained for %q", c.Drill, c.Path, d.Path, d.Drill)
		}
	}
}

// TestDrainRulesRefuse checks each rule, its text, and what overrides it.
func TestDrainRulesRefuse(t *testing.T) {
	drained := func(paths ...string) *State {
		s := &State{}
		for _, p := range paths {
			s, _ = applyOne(t, s, drainFor(s, p, noon))
		}
		return s
	}
	stopped := drained()
	stopped.StopLever = &StopLever{Reason: "incident 42", Actor: "bob", At: noon}
	staged := drained()
	staged.Rollout = &Rollout{Number: 3, RolloutConfig: RolloutConfig{Regions: []string{"eu"}}, Body: []byte("x")}
	drilled, r := applyOne(t, drained(), command{Kind: kindPutDrain, Path: "ap", Drill: "one", Until: noon.Add(time.Hour), Actor: "bob", At: noon})
	if r.Code != codeOK {
		t.Fatal(r.Message)
	}
	for _, c := range []struct {
		name   string
		s      *State
		change func(*command)
		want   string // empty: accepted
	}{
		{"the first region", drained(), nil, ""},
		{"the second", drained("ap"), nil, ""},
		{"the third", drained("ap", "eu"), nil, "1 of 2 regions would remain in service, fewer than safety.min_regions (2)"},
		{"the third, overridden", drained("ap", "eu"), func(c *command) { c.OverrideRules, c.Reason = true, "fire" }, ""},
		{"overridden without a reason", drained("ap", "eu"), func(c *command) { c.OverrideRules, c.Reason = true, " " }, "--override-safety needs a reason"},
		{"the second when one is unreachable", drained("ap"), func(c *command) { c.Unserving = []string{"eu"} }, "safety.min_regions"},
		{"what two zones leave", drained("eu/a", "eu/b", "ap"), nil, "safety.min_regions"},
		{"half a region too much", drained("ap", "eu/a", "sa/a"), nil, "less than safety.min_capacity_share (0.4): 25 % for m"},
		{"in a blocked window", drained(), func(c *command) { c.At = noon.Add(10 * time.Hour) }, "the window freeze"},
		{"in a blocked window, overridden", drained(), func(c *command) { c.At, c.OverrideRules, c.Reason = noon.Add(10*time.Hour), true, "fire" }, ""},
		{"stopped", stopped, nil, "stopped by bob since 2026-01-02T12:00:00Z: incident 42; `spillway drill allow --fleet`"},
		{"stopped, overridden", stopped, func(c *command) { c.OverrideRules, c.Reason = true, "fire" }, "stopped by bob"},
		{"an operator's drain during a drill", drilled, nil, ""},
		{"a drill during another", drilled, func(c *command) { c.Drill, c.Until = "two", noon.Add(time.Hour) }, "drill one is in progress"},
		{"a drill after the other expired", drilled, func(c *command) { c.Drill, c.At, c.Until = "two", noon.Add(time.Hour), noon.Add(2*time.Hour) }, ""},
		{"another drain of the drill", drilled, func(c *command) { c.Drill, c.Until = "one", noon.Add(time.Hour) }, ""},
		{"a drill without an end", drained(), func(c *command) { c.Drill = "two" }, "add --for"},
		{"a drill during a drain", drained("ap"), func(c *command) { c.Drill, c.Until = "two", noon.Add(time.Hour) }, "ap is drained by alice"},
		{"a drill during a stage", staged, func(c *command) { c.Drill, c.Until = "two", noon.Add(time.Hour) }, "a spec is staged in eu (stage 3)"},
		{"a drill that overrides", drained(), func(c *command) {
			c.Drill, c.Until, c.OverrideRules, c.Reason = "two", noon.Add(time.Hour), true, "fire"
		}, "cannot override"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := drainFor(c.s, "us", noon)
			if c.change != nil {
				c.change(&x)
			}
			next, r := applyOne(t, c.s, x)
			if _, found := next.findDrain("us"); found != (c.want == "") || !strings.Contains(r.Message, c.want) || (r.Code == codeOK) != (c.want == "") {
				t.Errorf("%s %q, drained: %v; want %q", r.Code, r.Message, found, c.want)
			}
		})
	}
}

// TestStopLeverEndsDrills: pulling the lever ends the drains of drills at once, those of operators stay, and undrain
// is always allowed.
func TestStopLeverEndsDrills(t *testing.T) {
	s, _ := applyOne(t, &State{}, command{Kind: kindPutDrain, Path: "ap", Drill: "one", Until: noon.Add(time.Hour), Actor: "bob", At: noon})
	s, _ = applyOne(t, s, drainFor(s, "eu", noon))
	if _, r := applyOne(t, s, command{Kind: kindStopLever, Action: actionStopAll, At: noon}); r.Code != codeRefused {
		t.Error("the lever is pulled without a reason")
	}
	s, r := applyOne(t, s, command{Kind: kindStopLever, Action: actionStopAll, Reason: "incident", Actor: "carol", At: noon})
	if r.Code != codeOK || len(s.Drains) != 1 || s.Drains[0].Path != "eu" || s.StopLever.Actor != "carol" {
		t.Fatalf("%+v: %+v", r, s)
	}
	if last := s.Audit[len(s.Audit)-1]; last.Action != "stop-all" || last.Reason != "incident" {
		t.Errorf("audited as %+v", last)
	}
	if s, r = applyOne(t, s, command{Kind: kindDeleteDrain, Path: "eu", At: noon}); r.Code != codeOK {
		t.Errorf("undrain is refused: %s", r.Message)
	}
	if s, r = applyOne(t, s, command{Kind: kindStopLever, Action: actionAllow, At: noon}); r.Code != codeOK || s.StopLever != nil {
		t.Errorf("release: %+v", r)
	}
	if _, r = applyOne(t, s, drainFor(s, "eu", noon)); r.Code != codeOK {
		t.Errorf("after the release: %s", r.Message)
	}
}

// TestDrainTakesAreBounded: an entry that reports too much is refused, and merging reports stays within the bound.
func TestDrainTakesAreBounded(t *testing.T) {
	c := drainFor(&State{}, "us", noon)
	for i := range maxDrainModels {
		c.Takes = append(c.Takes, ModelShare{Model: fmt.Sprint("m", i), Share: 1})
	}
	if _, err := encodeCommand(c); err == nil {
		t.Error("an entry with too many models is accepted")
	}
	c.Takes = c.Takes[1:]
	s, _ := applyOne(t, &State{}, drainFor(&State{}, "us/a", noon))
	s, r := applyOne(t, s, c)
	if r.Code != codeOK || len(s.Drains[0].Takes) != maxDrainModels {
		t.Errorf("%+v: %d models", r, len(s.Drains[0].Takes))
	}
	c.Takes = []ModelShare{{Model: "m", Share: wholeShare + 1}}
	if _, err := encodeCommand(c); err == nil {
		t.Error("more than the whole is accepted")
	}
}
