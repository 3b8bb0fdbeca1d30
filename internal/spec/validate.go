package spec

import (
	"fmt"
	"slices"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// Validate checks a spec with defaults filled in (by Decode) and returns every mistake in it.
func (s *Spec) Validate() []Problem { return s.findProblems(false) }

func (s *Spec) findProblems(alone bool) []Problem {
	v := newValidation(s, alone)
	if v.checkCounts(); len(v.problems) > 0 {
		return v.problems
	}
	if !alone || s.Zone.Name != "" || len(s.Zone.Nameservers) > 0 {
		(&zoneValidator{v}).checkZone()
	}
	if !alone || len(s.Services) > 0 {
		(&serviceValidator{v}).checkServices()
	}
	if !alone || len(s.Regions) > 0 {
		(&regionValidator{v}).checkRegions()
	}
	models := &modelValidator{v}
	models.checkModels()
	(&aliasValidator{v}).checkAliases()
	models.checkFallbacks()
	(&tenantValidator{v}).checkTenants()
	(&issuerValidator{v}).checkIssuers()
	(&poolValidator{v}).checkPools()
	(&safetyValidator{v}).checkSafety()
	routing := &routingValidator{v}
	routing.checkObjectives()
	routing.checkPolicy()
	return v.problems
}

// validation is what the validators of all sections share: the spec, the names that it declares, and the mistakes found
// so far. One validator checks one section.
type validation struct {
	problemCollector
	spec       *Spec
	standalone bool // the spec of a standalone zone

	regions, models, aliases, tenantNames []string
	requestNames                          []string // models and aliases

	lookupSets map[*string]map[string]bool // sets of the lists above, by their first element, built on first use
}

func newValidation(s *Spec, alone bool) *validation {
	v := &validation{
		spec: s, standalone: alone, regions: s.regionNames(),
		models:      namesOf(s.Models, func(m *Model) string { return m.Name }),
		aliases:     namesOf(s.Aliases, func(a *Alias) string { return a.Name }),
		tenantNames: namesOf(s.Tenants, func(t *Tenant) string { return t.Name }),
		lookupSets:  map[*string]map[string]bool{},
	}
	v.requestNames = slices.Concat(v.models, v.aliases)
	if alone {
		v.tenantNames = append(v.tenantNames, DefaultTenant)
	}
	return v
}

// checkCounts bounds the lists that every node indexes.
func (v *validation) checkCounts() {
	s := v.spec
	for _, l := range []struct {
		key     string
		n, most int
	}{{"regions", len(s.Regions), 1000}, {"services", len(s.Services), 1000}, {"models", len(s.Models), 1000}, {"aliases", len(s.Aliases), 1000}} {
		if l.n > l.most {
			v.addProblem("$."+l.key, fmt.Sprintf("there are %d %s, more than %d", l.n, l.key, l.most), "split the fleet over several zones with a spec each")
		}
	}
}

// checkReferences reports names that refer to nothing. needs is where they would be declared.
func (v *validation) checkReferences(noun, needs string, refs, declared []string, path func(i int) string) {
	if len(refs) == 0 {
		return
	}
	set := v.lookupSet(declared)
	for i, n := range refs {
		if !set[n] && len(v.problems) < maxUsefulProblems {
			v.reportProblem(Problem{
				Path: path(i), Reason: fmt.Sprintf("unknown %s %q", noun, n),
				Hint: strict.SuggestName(n, declared, noun+"s"), DependsOn: needs,
			})
		}
	}
}

// lookupSet returns a set of an unchanging list: thousands of tenants may refer to thousands of models.
func (v *validation) lookupSet(list []string) map[string]bool {
	if len(list) == 0 {
		return nil
	}
	if set, ok := v.lookupSets[&list[0]]; ok {
		return set
	}
	set := make(map[string]bool, len(list))
	for _, n := range list {
		set[n] = true
	}
	v.lookupSets[&list[0]] = set
	return set
}

// checkTenantNames checks references to tenants. A standalone zone has one tenant, declared or not.
func (v *validation) checkTenantNames(refs []string, path string) {
	v.checkReferences("tenant", "$.tenants[*].name", refs, v.tenantNames, itemPath(path))
	v.checkUnique("tenant", refs, itemPath(path))
}
