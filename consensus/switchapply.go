package consensus

// startSwitch starts a switch and its drain in one entry. The drain is subject to the safety rules like any other.
func (s *State) startSwitch(c command, k stateChecks) commandResult {
	from, g := c.Path, &RegionSwitch{}
	switch active := s.Switch; {
	case c.Switch == nil || c.Switch.To == "" || from == "" || c.Switch.To == from:
		return newRefusal("a switch needs a region and another one to move to")
	case active.IsActive():
		return newRefusal("a switch from %s to %s is in progress (step %s): wait for its end, or end it with `spillway switch abort`", active.From, active.To, active.Step)
	}
	for _, d := range s.drainsInForce(c.At, "") {
		if d.Path == from || d.Path == c.Switch.To {
			return newRefusal("%s is drained by %s already: end that drain with `spillway undrain` first", d.Path, d.Actor)
		}
	}
	g.SwitchConfig, g.From, g.Number, g.Over = *c.Switch, from, s.Index, max(c.Over, 0)
	g.Step, g.StepAt, g.Actor, g.Reason, g.At = SwitchShift, c.At, c.Actor, c.Reason, c.At
	c.Drill = g.DrillName()
	if r := s.putDrain(c, k); r.Code != codeOK {
		return r
	}
	s.Switch = g
	return commandResult{Code: codeOK, Value: g.Number}
}

// stepSwitch records the next step of a switch. A step from another one than the present is refused: a leader that lost
// its leadership must not undo the steps of its successor. Moving back and aborting end the drain in the same entry.
func (s *State) stepSwitch(c command) commandResult {
	g, next := s.Switch, SwitchStep(c.Action)
	switch {
	case g == nil || g.Number != c.BasedOn || !g.IsActive():
		return newRefusal("this switch has ended: `spillway switch status` shows how")
	case string(g.Step) != c.Path && next != SwitchAborted:
		return newRefusal("the switch is in step %s, not %s", g.Step, c.Path)
	case !g.mayFollow(next):
		return newRefusal("step %.32q does not follow step %s", next, g.Step)
	}
	s.setSwitchStep(next, c)
	if next == SwitchBack || next == SwitchAborted {
		s.Drains = removeDrains(s.Drains, func(d Drain) bool { return d.Path == g.From })
	}
	return commandResult{Code: codeOK, Value: g.Number}
}

func (s *State) setSwitchStep(next SwitchStep, c command) {
	g := *s.Switch
	g.Step, g.StepAt, g.Note = next, c.At, c.Reason
	s.Switch = &g
}
