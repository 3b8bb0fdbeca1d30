package sim

import (
	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// drained puts the drains that are on in force, wherever drains are agreed on.
func (r *run) drained() {
	var list []consensus.Drain
	for i := range r.s.Faults {
		f := &r.s.Faults[i]
		if f.Kind == Drain && r.broken[i] {
			for _, path := range r.paths(f) {
				list = append(list, consensus.Drain{Path: path, Reason: "the experiment"})
			}
		}
	}
	if p := r.planet; p != nil {
		for _, n := range p.nodes {
			n.lab.Drain(list)
		}
		return
	}
	r.drains++
	d := &uplink.Directive{Index: r.drains}
	for _, x := range list {
		d.Drains = append(d.Drains, uplink.Drain{Path: x.Path, Reason: x.Reason})
	}
	for _, g := range r.gateways {
		g.lab.Obey(d, r.spec, r.time(r.now))
		r.command(g)
	}
	if len(r.gateways) == 0 {
		for _, a := range r.agents {
			r.told(a, word{what: d})
		}
	}
}

// paths are what a drain names.
func (r *run) paths(f *Fault) (out []string) {
	switch {
	case f.Zone == "":
		return []string{f.Region}
	case f.Workers == 0:
		return []string{f.Region + "/" + f.Zone}
	}
	z := r.zoneNamed(f.Region, f.Zone)
	for k := range f.Workers {
		out = append(out, f.Region+"/"+f.Zone+"/"+z.workers[f.Worker+k].name)
	}
	return out
}
