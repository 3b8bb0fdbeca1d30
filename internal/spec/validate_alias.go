package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// aliasValidator checks aliases, their targets and the conditions of those.
type aliasValidator struct{ *validation }

func (v *aliasValidator) checkAliases() {
	list := v.spec.Aliases
	for i := range list {
		a, path := &list[i], itemPath("$.aliases")(i)
		if why := nameProblem(a.Name); why != "" {
			v.addProblem(path+".name", "alias: "+why, nameHint)
		} else if v.lookupSet(v.models)[a.Name] {
			v.addProblem(path+".name", fmt.Sprintf("alias %q hides the model of that name", a.Name), "rename the alias: a model always answers to its own name")
		}
		v.checkTargets(a, path+".targets")
		if !slices.Contains(stickyModes(), a.Sticky) {
			v.addProblem(path+".sticky", fmt.Sprintf("unknown sticky %q", a.Sticky), strict.SuggestName(a.Sticky, stickyModes(), "words"))
		}
	}
	v.checkUnique("alias", v.aliases, itemNamePath("$.aliases"))
}

func stickyModes() []string { return []string{StickySession, StickyClient, StickyTenant, StickyNone} }

// maxTargets bounds the targets weighed for each request.
const maxTargets = 100

func (v *aliasValidator) checkTargets(a *Alias, path string) {
	switch {
	case len(a.Targets) == 0:
		v.addProblem(path, fmt.Sprintf("alias %q has no targets", a.Name), "write targets: [{model: "+exampleName(v.models)+", weight: 1}]")
		return
	case len(a.Targets) > maxTargets:
		v.addProblem(path, fmt.Sprintf("alias %q has %d targets, more than %d", a.Name, len(a.Targets), maxTargets), "spread them over several aliases")
		return
	}
	sum, rest := 0.0, 0.0
	for i := range a.Targets {
		t := &a.Targets[i]
		v.checkTarget(t, itemPath(path)(i))
		sum += max(t.Weight, 0)
		if !t.When.HasConditions() {
			rest += max(t.Weight, 0)
		}
	}
	switch {
	case !(sum > 0) || !isFinite(sum):
		v.addProblem(path, fmt.Sprintf("the weights of alias %q sum to %s", a.Name, formatSum(sum)), "give at least one target a weight above 0, such as weight: 1")
	case !(rest > 0):
		v.addProblem(path, fmt.Sprintf("every target of alias %q has conditions: requests that meet none would go nowhere", a.Name), "add a target without when: and with a weight above 0")
	}
	v.checkUnique("target", namesOf(a.Targets, (*AliasTarget).conditionKey), func(i int) string { return itemPath(path)(i) + ".model" })
}

func (v *aliasValidator) checkTarget(t *AliasTarget, path string) {
	if known := v.lookupSet(v.models)[t.Model]; !known && v.lookupSet(v.aliases)[t.Model] {
		v.addProblem(path+".model", fmt.Sprintf("target %q is an alias", t.Model), "an alias resolves to models only: write its models here")
	} else if !known {
		v.reportProblem(Problem{
			Path: path + ".model", DependsOn: "$.models[*].name",
			Reason: fmt.Sprintf("unknown model %q", t.Model), Hint: strict.SuggestName(t.Model, v.models, "models"),
		})
	}
	if t.Weight < 0 || !isFinite(t.Weight) {
		v.addProblem(path+".weight", fmt.Sprintf("weight %v is negative", t.Weight), "write 0 to send nothing there, or a number above 0")
	}
	v.checkConditions(&t.When, path+".when")
}

func (v *aliasValidator) checkConditions(w *TargetConditions, path string) {
	h := &w.Header
	switch {
	case h.Name == "" && h.Value != "":
		v.addProblem(path+".header", "the condition names no header", "write header: {name: X-Cohort, value: beta}")
	case h.Name != "" && !isToken(h.Name):
		v.addProblem(path+".header.name", fmt.Sprintf("%q is not a header name", h.Name), "write a name such as X-Cohort")
	case h.Name != "" && isHiddenHeader(h.Name):
		v.addProblem(path+".header.name", fmt.Sprintf("conditions cannot read the header %s", h.Name), "choose a header of your own, such as X-Cohort")
	}
	v.checkTenantNames(w.Tenants, path+".tenants")
	if !(w.Cohort >= 0 && w.Cohort <= 100) {
		v.addProblem(path+".cohort", fmt.Sprintf("cohort %v is out of range", w.Cohort), "write the share of tenants in percent, above 0 and at most 100")
	}
}

// isHiddenHeader reports whether clients cannot send the header, or conditions must not read it.
func isHiddenHeader(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "spillway-") || slices.Contains([]string{"authorization", "x-api-key", "api-key", "cookie", "host"}, name)
}

// poolValidator checks worker pools.
type poolValidator struct{ *validation }

func (v *poolValidator) checkPools() {
	list := v.spec.Pools
	if len(list) > MaxPools {
		v.addProblem("$.pools", fmt.Sprintf("there are %d pools, more than %d", len(list), MaxPools), "merge pools that differ in nothing but their name")
		return
	}
	for i := range list {
		v.checkPool(&list[i], itemPath("$.pools")(i))
	}
	v.checkUnique("pool", namesOf(list, func(p *WorkerPool) string { return p.Name }), itemNamePath("$.pools"))
}

func (v *poolValidator) checkPool(p *WorkerPool, path string) {
	if why := nameProblem(p.Name); why != "" {
		v.addProblem(path+".name", "pool: "+why, nameHint)
	}
	if len(p.Labels) == 0 {
		v.addProblem(path+".labels", fmt.Sprintf("pool %q names no labels", p.Name), "write the labels of its workers: labels: {tier: gold}")
	}
	if len(p.Tenants)+len(p.Models)+len(p.Classes) == 0 {
		v.addProblem(path, fmt.Sprintf("pool %q names no tenants, models or classes", p.Name), "write at least one of them: the pool would otherwise take all requests")
	}
	v.checkTenantNames(p.Tenants, path+".tenants")
	v.checkReferences("model", "$.models[*].name", p.Models, v.models, itemPath(path+".models"))
	v.checkUnique("model", p.Models, itemPath(path+".models"))
	v.checkUnique("class", namesOf(p.Classes, (*Class).String), itemPath(path+".classes"))
}
