package steer

import "time"

// ReturnRamps tracks which regions are returning from a drain or an outage, so that their clients return gradually:
// caches are cold, and the cause of the outage may recur. A region leaves at once; its clients follow over one TTL as
// they resolve again. It belongs to the leader and starts empty after an election: the plan in force then gives the
// excluded regions. The zero ReturnRamps is ready.
type ReturnRamps struct {
	absent         map[string]bool
	returningSince map[string]time.Time
	initialized    bool
}

// rampSteps is the number of steps, each one a plan, in which a region returns.
const rampSteps = 8

// defaultRampTime is the duration of a return when the spec sets none.
const defaultRampTime = 30 * time.Second

// MarkRamps sets RegionState.Ramp for a plan that is made now.
func (t *ReturnRamps) MarkRamps(in *PlanInput, now time.Time) {
	ramp := defaultRampTime
	if r := in.Spec.Steering.Ramp; r != nil {
		ramp = time.Duration(*r)
	}
	if !t.initialized {
		t.initFromPlan(in.Prev, ramp, now)
	}
	out, since := make(map[string]bool), make(map[string]time.Time)
	for r := range min(len(in.Regions), len(in.Spec.Regions)) {
		name, st := in.Spec.Regions[r].Name, &in.Regions[r]
		if st.Ramp = 0; st.Drained || st.Dead || st.Unhealthy {
			out[name] = true
			continue
		}
		begun, returning := t.returningSince[name]
		if t.absent[name] {
			begun, returning = now, true
		}
		if !returning || ramp <= 0 {
			continue
		}
		if step := int(max(0, now.Sub(begun))*rampSteps/ramp) + 1; step < rampSteps {
			since[name] = begun
			st.Ramp = float64(step) / rampSteps
		}
	}
	t.absent, t.returningSince = out, since
}

// initFromPlan initializes the state from the plan in force.
func (t *ReturnRamps) initFromPlan(prev *Plan, ramp time.Duration, now time.Time) {
	t.initialized = true
	t.absent, t.returningSince = make(map[string]bool), make(map[string]time.Time)
	if prev == nil {
		return
	}
	for _, name := range prev.Without {
		t.absent[name] = true
	}
	for i, part := range prev.Ramp {
		if part > 0 && i < len(prev.Regions) {
			t.returningSince[prev.Regions[i]] = now.Add(-ramp * time.Duration(int(part)*rampSteps/256-1) / rampSteps)
		}
	}
}
