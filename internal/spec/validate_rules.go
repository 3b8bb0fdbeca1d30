package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

func stickyModes() []string { return []string{StickySession, StickyClient, StickyTenant, StickyNone} }

// maxTargets bounds the targets weighed for each request.
const maxTargets = 100

func (j *validator) checkTargets(a *Alias, path string) {
	switch {
	case len(a.Targets) == 0:
		j.addProblem(path, fmt.Sprintf("alias %q has no targets", a.Name), "write targets: [{model: "+exampleName(j.models)+", weight: 1}]")
		return
	case len(a.Targets) > maxTargets:
		j.addProblem(path, fmt.Sprintf("alias %q has %d targets, more than %d", a.Name, len(a.Targets), maxTargets), "spread them over several aliases")
		return
	}
	sum, rest := 0.0, 0.0
	for i := range a.Targets {
		t := &a.Targets[i]
		j.checkTarget(t, itemPath(path)(i))
		sum += max(t.Weight, 0)
		if !t.When.HasConditions() {
			rest += max(t.Weight, 0)
		}
	}
	switch {
	case !(sum > 0) || !isFinite(sum):
		j.addProblem(path, fmt.Sprintf("the weights of alias %q sum to %s", a.Name, formatSum(sum)), "give at least one target a weight above 0, such as weight: 1")
	case !(rest > 0):
		j.addProblem(path, fmt.Sprintf("every target of alias %q has conditions: requests that meet none would go nowhere", a.Name), "add a target without when: and with a weight above 0")
	}
	j.checkUnique("target", namesOf(a.Targets, (*AliasTarget).conditionKey), func(i int) string { return itemPath(path)(i) + ".model" })
}

func (j *validator) checkTarget(t *AliasTarget, path string) {
	if slices.Contains(j.aliases, t.Model) && !slices.Contains(j.models, t.Model) {
		j.addProblem(path+".model", fmt.Sprintf("target %q is an alias", t.Model), "an alias resolves to models only: write its models here")
	} else if !slices.Contains(j.models, t.Model) {
		j.problems = append(j.problems, Problem{
			Path: path + ".model", DependsOn: "$.models[*].name",
			Reason: fmt.Sprintf("unknown model %q", t.Model), Hint: strict.SuggestName(t.Model, j.models, "models"),
		})
	}
	if t.Weight < 0 || !isFinite(t.Weight) {
		j.addProblem(path+".weight", fmt.Sprintf("weight %v is negative", t.Weight), "write 0 to send nothing there, or a number above 0")
	}
	j.checkConditions(&t.When, path+".when")
}

func (j *validator) checkConditions(w *TargetConditions, path string) {
	h := &w.Header
	switch {
	case h.Name == "" && h.Value != "":
		j.addProblem(path+".header", "the condition names no header", "write header: {name: X-Cohort, value: beta}")
	case h.Name != "" && !isToken(h.Name):
		j.addProblem(path+".header.name", fmt.Sprintf("%q is no header's name", h.Name), "write a name such as X-Cohort")
	case h.Name != "" && isHiddenHeader(h.Name):
		j.addProblem(path+".header.name", fmt.Sprintf("the header %s never reaches the rules", h.Name), "choose a header of your own, such as X-Cohort")
	}
	j.checkTenantNames(w.Tenants, path+".tenants")
	if !(w.Cohort >= 0 && w.Cohort <= 100) {
		j.addProblem(path+".cohort", fmt.Sprintf("cohort %v is no percentage", w.Cohort), "write the share of tenants in percent, above 0 and at most 100")
	}
}

// isHiddenHeader reports whether clients cannot send the header, or conditions must not read it.
func isHiddenHeader(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "spillway-") || slices.Contains([]string{"authorization", "x-api-key", "api-key", "cookie", "host"}, name)
}

// checkTenantNames checks references to tenants. A standalone zone has one tenant, declared or not.
func (j *validator) checkTenantNames(refs []string, path string) {
	j.checkReferences("tenant", "$.tenants[*].name", refs, j.tenantNames, itemPath(path))
	j.checkUnique("tenant", refs, itemPath(path))
}

// checkFallbacks checks every model's fallback, and that chains have no cycle.
func (j *validator) checkFallbacks() {
	next := map[string]string{}
	for i := range j.spec.Models {
		m := &j.spec.Models[i]
		next[m.Name] = m.Fallback
		path := itemPath("$.models")(i) + ".fallback"
		switch {
		case m.Fallback == "":
		case slices.Contains(j.aliases, m.Fallback) && !slices.Contains(j.models, m.Fallback):
			j.addProblem(path, fmt.Sprintf("the fallback %q is an alias", m.Fallback), "a fallback is one model: write its name")
			next[m.Name] = ""
		default:
			j.checkReferences("model", "$.models[*].name", []string{m.Fallback}, j.models, func(int) string { return path })
		}
	}
	told := map[string]bool{}
	for i := range j.spec.Models {
		j.checkFallbackCycle(j.spec.Models[i].Name, itemPath("$.models")(i)+".fallback", next, told)
	}
}

// checkFallbackCycle reports a cyclic chain of fallbacks, once per cycle.
func (j *validator) checkFallbackCycle(first, path string, next map[string]string, told map[string]bool) {
	way := []string{first}
	for at := next[first]; at != "" && len(way) <= len(next); at = next[at] {
		way = append(way, at)
		if at != first {
			continue
		}
		if !told[first] {
			j.addProblem(path, "the fallbacks go in a circle: "+strings.Join(way, " -> "), "let the last model of a chain have none")
		}
		for _, name := range way {
			told[name] = true
		}
		return
	}
}

func (j *validator) checkPools() {
	list := j.spec.Pools
	if len(list) > MaxPools {
		j.addProblem("$.pools", fmt.Sprintf("there are %d pools, more than %d", len(list), MaxPools), "merge pools that differ in nothing but their name")
		return
	}
	for i := range list {
		j.checkPool(&list[i], itemPath("$.pools")(i))
	}
	j.checkUnique("pool", namesOf(list, func(p *WorkerPool) string { return p.Name }), itemNamePath("$.pools"))
}

func (j *validator) checkPool(p *WorkerPool, path string) {
	if why := nameProblem(p.Name); why != "" {
		j.addProblem(path+".name", "pool: "+why, nameHint)
	}
	if len(p.Labels) == 0 {
		j.addProblem(path+".labels", fmt.Sprintf("pool %q names no labels", p.Name), "write the labels of its workers: labels: {tier: gold}")
	}
	if len(p.Tenants)+len(p.Models)+len(p.Classes) == 0 {
		j.addProblem(path, fmt.Sprintf("pool %q takes everybody's requests", p.Name), "name the tenants, models or classes that it is for")
	}
	j.checkTenantNames(p.Tenants, path+".tenants")
	j.checkReferences("model", "$.models[*].name", p.Models, j.models, itemPath(path+".models"))
	j.checkUnique("model", p.Models, itemPath(path+".models"))
	j.checkUnique("class", namesOf(p.Classes, (*Class).String), itemPath(path+".classes"))
}
