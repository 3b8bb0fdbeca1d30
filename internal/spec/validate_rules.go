package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

func stickies() []string { return []string{StickySession, StickyClient, StickyTenant, StickyNone} }

// maxTargets bounds what is weighed for each request.
const maxTargets = 100

func (j *judge) targets(a *Alias, path string) {
	switch {
	case len(a.Targets) == 0:
		j.bad(path, fmt.Sprintf("alias %q has no targets", a.Name), "write targets: [{model: "+firstOf(j.models)+", weight: 1}]")
		return
	case len(a.Targets) > maxTargets:
		j.bad(path, fmt.Sprintf("alias %q has %d targets, more than %d", a.Name, len(a.Targets), maxTargets), "spread them over several aliases")
		return
	}
	sum, rest := 0.0, 0.0
	for i := range a.Targets {
		t := &a.Targets[i]
		j.target(t, item(path)(i))
		sum += max(t.Weight, 0)
		if !t.When.Any() {
			rest += max(t.Weight, 0)
		}
	}
	switch {
	case !(sum > 0) || !finite(sum):
		j.bad(path, fmt.Sprintf("the weights of alias %q sum to %s", a.Name, sumWord(sum)), "give at least one target a weight above 0, such as weight: 1")
	case !(rest > 0):
		j.bad(path, fmt.Sprintf("every target of alias %q has conditions: requests that meet none would go nowhere", a.Name), "add a target without when: and with a weight above 0")
	}
	j.distinct("target", names(a.Targets, (*Target).key), func(i int) string { return item(path)(i) + ".model" })
}

func (j *judge) target(t *Target, path string) {
	if slices.Contains(j.aliases, t.Model) && !slices.Contains(j.models, t.Model) {
		j.bad(path+".model", fmt.Sprintf("target %q is an alias", t.Model), "an alias resolves to models only: write its models here")
	} else if !slices.Contains(j.models, t.Model) {
		j.found = append(j.found, Problem{
			Path: path + ".model", Needs: "$.models[*].name",
			Reason: fmt.Sprintf("unknown model %q", t.Model), Hint: strict.Suggest(t.Model, j.models, "models"),
		})
	}
	if t.Weight < 0 || !finite(t.Weight) {
		j.bad(path+".weight", fmt.Sprintf("weight %v is negative", t.Weight), "write 0 to send nothing there, or a number above 0")
	}
	j.when(&t.When, path+".when")
}

func (j *judge) when(w *When, path string) {
	h := &w.Header
	switch {
	case h.Name == "" && h.Value != "":
		j.bad(path+".header", "the condition names no header", "write header: {name: X-Cohort, value: beta}")
	case h.Name != "" && !isToken(h.Name):
		j.bad(path+".header.name", fmt.Sprintf("%q is no header's name", h.Name), "write a name such as X-Cohort")
	case h.Name != "" && unseen(h.Name):
		j.bad(path+".header.name", fmt.Sprintf("the header %s never reaches the rules", h.Name), "choose a header of your own, such as X-Cohort")
	}
	j.tenantNames(w.Tenants, path+".tenants")
	if !(w.Cohort >= 0 && w.Cohort <= 100) {
		j.bad(path+".cohort", fmt.Sprintf("cohort %v is no percentage", w.Cohort), "write the share of tenants in percent, above 0 and at most 100")
	}
}

// unseen says that clients cannot send the header, or that it holds what no rule may read.
func unseen(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "spillway-") || slices.Contains([]string{"authorization", "x-api-key", "api-key", "cookie", "host"}, name)
}

// tenantNames judges references to tenants. In a zone that stands alone there is one, declared or not.
func (j *judge) tenantNames(refs []string, path string) {
	j.known("tenant", "$.tenants[*].name", refs, j.tenantList, item(path))
	j.distinct("tenant", refs, item(path))
}

// fallbacks judges every model's fallback, and that following them ends.
func (j *judge) fallbacks() {
	next := map[string]string{}
	for i := range j.spec.Models {
		m := &j.spec.Models[i]
		next[m.Name] = m.Fallback
		path := item("$.models")(i) + ".fallback"
		switch {
		case m.Fallback == "":
		case slices.Contains(j.aliases, m.Fallback) && !slices.Contains(j.models, m.Fallback):
			j.bad(path, fmt.Sprintf("the fallback %q is an alias", m.Fallback), "a fallback is one model: write its name")
			next[m.Name] = ""
		default:
			j.known("model", "$.models[*].name", []string{m.Fallback}, j.models, func(int) string { return path })
		}
	}
	told := map[string]bool{}
	for i := range j.spec.Models {
		j.circle(j.spec.Models[i].Name, item("$.models")(i)+".fallback", next, told)
	}
}

// circle reports a chain of fallbacks that comes back to its beginning, once for each circle.
func (j *judge) circle(first, path string, next map[string]string, told map[string]bool) {
	way := []string{first}
	for at := next[first]; at != "" && len(way) <= len(next); at = next[at] {
		way = append(way, at)
		if at != first {
			continue
		}
		if !told[first] {
			j.bad(path, "the fallbacks go in a circle: "+strings.Join(way, " -> "), "let the last model of a chain have none")
		}
		for _, name := range way {
			told[name] = true
		}
		return
	}
}

func (j *judge) pools() {
	list := j.spec.Pools
	if len(list) > MaxPools {
		j.bad("$.pools", fmt.Sprintf("there are %d pools, more than %d", len(list), MaxPools), "merge pools that differ in nothing but their name")
		return
	}
	for i := range list {
		j.pool(&list[i], item("$.pools")(i))
	}
	j.distinct("pool", names(list, func(p *Pool) string { return p.Name }), itemName("$.pools"))
}

func (j *judge) pool(p *Pool, path string) {
	if why := badWord(p.Name); why != "" {
		j.bad(path+".name", "pool: "+why, wordHint)
	}
	if len(p.Labels) == 0 {
		j.bad(path+".labels", fmt.Sprintf("pool %q names no labels", p.Name), "write the labels of its workers: labels: {tier: gold}")
	}
	if len(p.Tenants)+len(p.Models)+len(p.Classes) == 0 {
		j.bad(path, fmt.Sprintf("pool %q takes everybody's requests", p.Name), "name the tenants, models or classes that it is for")
	}
	j.tenantNames(p.Tenants, path+".tenants")
	j.known("model", "$.models[*].name", p.Models, j.models, item(path+".models"))
	j.distinct("model", p.Models, item(path+".models"))
	j.distinct("class", names(p.Classes, (*Class).String), item(path+".classes"))
}
