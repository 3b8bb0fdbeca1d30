package sim

import "github.com/spillway-lb/spillway/internal/uplink"

// applyDrains sets the active drains at every place where drains are agreed on.
func (r *simulation) applyDrains() {
	var list []uplink.ActiveDrain
	for i := range r.scenario.Faults {
		f := &r.scenario.Faults[i]
		if f.Kind == Drain && r.activeFaults[i] {
			for _, path := range r.drainPaths(f) {
				list = append(list, uplink.ActiveDrain{Path: path, Reason: "the experiment", Start: r.startTime.Add(f.At), Over: f.Over})
			}
		}
	}
	if p := r.global; p != nil {
		for _, n := range p.nodes {
			n.core.setDrains(list)
		}
		return
	}
	r.drainIndex++
	d := &uplink.Directive{Index: r.drainIndex, Drains: list}
	for _, g := range r.gateways {
		g.model.applyDirective(d, r.spec, r.timeAt(r.now))
		r.sendZoneDirectives(g)
	}
	if len(r.gateways) == 0 {
		for _, a := range r.instances {
			r.applyZoneDirective(a, directiveMessage{directive: d})
		}
	}
}

// drainPaths are the paths that a drain covers.
func (r *simulation) drainPaths(f *Fault) (out []string) {
	switch {
	case f.Zone == "":
		return []string{f.Region}
	case f.Workers == 0:
		return []string{f.Region + "/" + f.Zone}
	}
	z := r.findZone(f.Region, f.Zone)
	for k := range f.Workers {
		out = append(out, f.Region+"/"+f.Zone+"/"+z.workers[f.Worker+k].name)
	}
	return out
}
