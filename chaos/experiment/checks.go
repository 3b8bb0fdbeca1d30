package experiment

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/chaos/sim"
)

func (e *Experiment) checkKnee(p *problemList, path string, k *Knee, cases []Case) {
	if !k.isWanted() {
		return
	}
	checkPolicies(p, path+".policy", []string{k.Policy})
	if !k.Search.isWanted() {
		p.addProblem(path+".search", "the knee has no search range", "write search: {from: 1, to: 64}")
	}
	checkCapacity(p, path+".search", &k.Search)
	checkCapacity(p, path+".small", k.Small)
	if k.Load < 0 || k.Load > 100 {
		p.addProblem(path+".load", fmt.Sprintf("a load of %v times the knee", k.Load), "use 0.01 to 100, or leave it out where values are parts of the knee")
	}
	if k.Case != "" && !slices.ContainsFunc(cases, func(c Case) bool { return c.Name == k.Case }) {
		p.addProblem(path+".case", fmt.Sprintf("unknown case %q", k.Case), "name one of cases", "$.cases[*].name")
	}
}

func (e *Experiment) checkTiers(p *problemList, path string, t *TierInstances, fleet []WorkerGroup) {
	if t.Gateways < 0 || t.Gateways > mostInstances {
		p.addProblem(path+".gateways", fmt.Sprintf("gateways %d is out of range", t.Gateways), fmt.Sprintf("use 1 to %d", mostInstances))
	}
	if t.Locals < 0 || t.Locals > mostInstances {
		p.addProblem(path+".locals", fmt.Sprintf("locals %d is out of range", t.Locals), fmt.Sprintf("use 1 to %d", mostInstances))
	}
	if t.Election < 0 || t.Election > time.Minute {
		p.addProblem(path+".election", fmt.Sprintf("election %v is out of range", t.Election), "use 0s to 1m")
	}
	for i, name := range t.Nodes {
		if !slices.ContainsFunc(fleet, func(g WorkerGroup) bool { return g.Region == name }) || slices.Contains(t.Nodes[:i], name) {
			p.addProblem(fmt.Sprintf("%s.nodes[%d]", path, i), fmt.Sprintf("a global node in %q", name), "name regions of the fleet, each once", "$.fleet[*].region")
		}
	}
}

func (e *Experiment) checkTenantsAndPlaces(p *problemList) {
	for i := range e.Tenants {
		at := fmt.Sprintf("$.tenants[%d]", i)
		if t := &e.Tenants[i]; t.Name == "" || slices.ContainsFunc(e.Tenants[:i], func(o TenantShare) bool { return o.Name == t.Name }) {
			p.addProblem(at+".name", fmt.Sprintf("tenant name %q is empty or a duplicate", t.Name), "give each tenant a unique name")
		} else if t.Share < 0 || t.Share > 1e6 {
			p.addProblem(at+".share", fmt.Sprintf("share %v is out of range", t.Share), "use more than 0, or leave it out for all")
		}
	}
	for i := range e.Places {
		if l := &e.Places[i]; l.Lat < -90 || l.Lat > 90 || l.Lon < -180 || l.Lon > 180 {
			p.addProblem(fmt.Sprintf("$.places[%d]", i), fmt.Sprintf("%s lies at %v, %v", cmp.Or(l.Name, "a region"), l.Lat, l.Lon), "use degrees, -90 to 90 and -180 to 180")
		}
	}
	checkNetwork(p, "$.network", &e.Network)
	e.checkTiers(p, "$.tiers", &e.Tiers, e.Fleet)
	for i := range e.Cases {
		c, at := &e.Cases[i], fmt.Sprintf("$.cases[%d]", i)
		if c.Network != nil {
			checkNetwork(p, at+".network", c.Network)
		}
		if c.Tiers != nil {
			e.checkTiers(p, at+".tiers", c.Tiers, slices.Concat(c.Fleet, e.Fleet))
		}
		for k := range c.Faults {
			e.checkFault(p, fmt.Sprintf("%s.faults[%d]", at, k), &c.Faults[k], c)
		}
		for k, name := range c.Without {
			if !slices.ContainsFunc(e.Tenants, func(t TenantShare) bool { return t.Name == name }) {
				p.addProblem(fmt.Sprintf("%s.without[%d]", at, k), fmt.Sprintf("unknown tenant %q", name), "name one of tenants", "$.tenants[*].name")
			}
		}
	}
}

func (e *Experiment) checkFault(p *problemList, at string, f *FaultSpec, c *Case) {
	fleet := c.Fleet
	if len(fleet) == 0 {
		fleet = e.Fleet
	}
	has := func(region, zone string) bool {
		return slices.ContainsFunc(fleet, func(g WorkerGroup) bool { return g.Region == region && (zone == "" || g.Zone == zone) })
	}
	tiers := c.Tiers
	if tiers == nil {
		tiers = &e.Tiers
	}
	kind := sim.FaultKind(f.Kind)
	ofRegion, ofZone, _ := kind.RequiredScopes()
	ofZone = ofZone || kind == sim.Drain && f.Zone != ""
	switch {
	case !slices.Contains(faultKinds(), f.Kind):
		p.addProblem(at+".kind", fmt.Sprintf("unknown fault %q", f.Kind), "use one of "+fmt.Sprint(faultKinds()))
	case f.At < 0 || f.For < 0:
		p.addProblem(at, "a time is negative", "use 0s or more")
	case ofRegion && !has(f.Region, ""):
		p.addProblem(at+".region", fmt.Sprintf("the fleet has no region %q", f.Region), "name one of the fleet's", "$.fleet[*].region")
	case ofZone && !has(f.Region, f.Zone):
		p.addProblem(at+".zone", fmt.Sprintf("region %s has no zone %q", f.Region, f.Zone), "name one of the fleet's", "$.fleet[*].zone")
	case f.Instance < 0 || f.Instance >= tiers.instancesOf(kind):
		p.addProblem(at+".instance", fmt.Sprintf("instance %d of %d", f.Instance, tiers.instancesOf(kind)), "count from 0, and say under tiers how many there are", "$.tiers")
	case !(f.Store >= 0 && f.Store <= 10_000):
		p.addProblem(at+".store", fmt.Sprintf("store %v is out of range", f.Store), "use 0 to 10000 GB/s")
	case f.Store > 0 && (f.For == 0 || kind != sim.WorkerDead && kind != sim.ZoneDead && kind != sim.RegionDead):
		p.addProblem(at+".store", "store has no effect: no worker restarts after this fault", "write the duration of a worker_dead, zone_dead or region_dead, or take store out")
	case f.Kind == string(sim.WorkerSlow) && (f.Factor < 0.01 || f.Factor > 1000):
		p.addProblem(at+".factor", fmt.Sprintf("factor %v is out of range", f.Factor), "use 0.01 to 1000")
	}
}

// MissingNeeds lists what the experiment needs and does not find: features that the simulator does not have yet, and
// traces that are not in the directory. If it is empty the experiment can be run.
func (e *Experiment) MissingNeeds(traces string) []string {
	out := slices.Clone(e.Needs)
	add := func(s string) {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	var dirs []string
	missing := map[string][]string{} // workloads whose traces are missing, by the directory that should hold them
	names, _ := load.WorkloadNames()
	for _, c := range e.expandCases() {
		name := strings.ToLower(c.Workload.Name)
		if len(e.Needs) == 0 && name != "" && !slices.Contains(names, name) {
			add("the workload " + name)
		}
		if folder, ok := traceFolders[name]; ok && c.Workload.Trace == "" && len(e.Needs) == 0 {
			dir := cmp.Or(c.Workload.Traces, traces)
			if (dir == "" || !isFolder(filepath.Join(dir, folder))) && !slices.Contains(missing[dir], name) {
				dirs, missing[dir] = append(dirs, dir), append(missing[dir], name)
			}
		}
	}
	for _, dir := range slices.Compact(dirs) {
		need := "the traces of " + strings.Join(missing[dir], ", ")
		if dir != "" {
			need += ", which are not in " + dir
		}
		add(need + " (--traces or " + load.TracesVariable + " gives their folder; `spillway traces` lists them)")
	}
	return out
}
