package steer

import "time"

// Returns remembers which regions are on their way back from a drain or a loss, so that their clients come back by and
// by: caches are cold, and whatever took the region away may do so again. A region leaves at once; its clients follow
// over one TTL, as they ask again. It belongs to whoever solves, and is empty when that changes: the plan in force then
// says who was out. The zero Returns is ready.
type Returns struct {
	out   map[string]bool
	since map[string]time.Time
	begun bool
}

// eighths is in how many steps a region returns: each is a plan.
const eighths = 8

// defaultRamp is how long a return takes when the spec does not say.
const defaultRamp = 30 * time.Second

// Mark fills in the regions' Ramp for a plan that is made now.
func (t *Returns) Mark(in *Input, now time.Time) {
	ramp := defaultRamp
	if r := in.Spec.Steering.Ramp; r != nil {
		ramp = time.Duration(*r)
	}
	if !t.begun {
		t.begin(in.Prev, ramp, now)
	}
	out, since := make(map[string]bool), make(map[string]time.Time)
	for r := range min(len(in.Regions), len(in.Spec.Regions)) {
		name, st := in.Spec.Regions[r].Name, &in.Regions[r]
		if st.Ramp = 0; st.Drained || st.Lost || st.Sick {
			out[name] = true
			continue
		}
		begun, returning := t.since[name]
		if t.out[name] {
			begun, returning = now, true
		}
		if !returning || ramp <= 0 {
			continue
		}
		if step := int(max(0, now.Sub(begun))*eighths/ramp) + 1; step < eighths {
			since[name] = begun
			st.Ramp = float64(step) / eighths
		}
	}
	t.out, t.since = out, since
}

// begin takes over from the plan in force.
func (t *Returns) begin(prev *Plan, ramp time.Duration, now time.Time) {
	t.begun = true
	t.out, t.since = make(map[string]bool), make(map[string]time.Time)
	if prev == nil {
		return
	}
	for _, name := range prev.Without {
		t.out[name] = true
	}
	for i, part := range prev.Ramp {
		if part > 0 && i < len(prev.Regions) {
			t.since[prev.Regions[i]] = now.Add(-ramp * time.Duration(int(part)*eighths/256-1) / eighths)
		}
	}
}
