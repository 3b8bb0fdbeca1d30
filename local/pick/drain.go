package pick

// drainQuotas are the requests that each draining worker may take now, by index into WorkerView.Workers.
type drainQuotas struct {
	quota  []float64
	active bool // some worker may have a drain under way
}

// mayTake reports whether a draining worker may take a request.
func (d *drainQuotas) mayTake(at int) bool { return d.quota[at] >= 1 }

// accrueRequest gives each draining worker its part of a request that was placed: its part of the speed of all workers
// that are up, less the part that the drain keeps away. A part of the choices alone would not suffice: the policy
// prefers a worker with less load in the remaining ones.
func (d *drainQuotas) accrueRequest(v *WorkerView, chosen int) {
	if !d.active {
		return
	}
	total := 0.0
	for i := range v.roomInputs {
		if g := &v.roomInputs[i]; !g.down && !g.invalid {
			total += g.prefillRate
		}
	}
	d.active = false
	for i := range v.roomInputs {
		g := &v.roomInputs[i]
		if !g.draining {
			d.quota[i] = 0
			continue
		}
		d.active = true
		d.quota[i] = min(d.quota[i]+max(0, 1-v.Workers[i].DrainPart)*g.prefillRate/max(total, g.prefillRate), maxDrainQuota)
		if i == chosen {
			d.quota[i] = max(0, d.quota[i]-1)
		}
	}
}
