package sim

import "github.com/spillway-lb/spillway/internal/uplink"

// applyDrains sets the active drains at every place where drains are agreed on.
func (fi *faultInjector) applyDrains() {
	var list []uplink.ActiveDrain
	for i := range fi.scenario.Faults {
		f := &fi.scenario.Faults[i]
		if f.Kind == Drain && fi.faults.active[i] {
			for _, path := range fi.drainPaths(f) {
				list = append(list, uplink.ActiveDrain{Path: path, Reason: "the experiment", Start: fi.loop.startTime.Add(f.At), Over: f.Over})
			}
		}
	}
	if p := fi.global; p.hasNodes() {
		for _, n := range p.nodes {
			n.core.setDrains(list)
		}
		return
	}
	fi.drainIndex++
	d := &uplink.Directive{Index: fi.drainIndex, Drains: list}
	for _, g := range fi.topology.gateways {
		g.model.applyDirective(d, fi.spec, fi.loop.currentTime())
		fi.regional.sendZoneDirectives(g)
	}
	if len(fi.topology.gateways) == 0 {
		for _, a := range fi.topology.instances {
			fi.zones.applyZoneDirective(a, directiveMessage{directive: d})
		}
	}
}

// drainPaths are the paths that a drain covers.
func (fi *faultInjector) drainPaths(f *Fault) (out []string) {
	switch {
	case f.Zone == "":
		return []string{f.Region}
	case f.Workers == 0:
		return []string{f.Region + "/" + f.Zone}
	}
	z := fi.topology.findZone(f.Region, f.Zone)
	for k := range f.Workers {
		out = append(out, f.Region+"/"+f.Zone+"/"+z.workers[f.Worker+k].name)
	}
	return out
}
