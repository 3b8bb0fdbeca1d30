package spec

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

func (j *validator) checkTenants() {
	list := j.spec.Tenants
	carried := j.residencyLabels()
	for i := range list {
		t, path := &list[i], itemPath("$.tenants")(i)
		if why := nameProblem(t.Name); why != "" {
			j.addProblem(path+".name", "tenant: "+why, nameHint)
		}
		if t.Class >= NumClasses {
			j.addProblem(path+".class", fmt.Sprintf("unknown class %s", t.Class), "write interactive, standard or batch")
		}
		j.checkKeys(t.Keys, path+".keys")
		j.checkTimedKeys(t.TimedKeys, path+".timed_keys")
		j.checkLimits(&t.Limits, path+".limits")
		j.checkBudget(&t.Budget, path+".budget")
		j.checkReferences("region", "$.regions[*].name", t.Regions, j.regions, itemPath(path+".regions"))
		j.checkUnique("region", t.Regions, itemPath(path+".regions"))
		j.checkReferences("model", "$.models[*].name", t.Models, j.requestNames, itemPath(path+".models"))
		j.checkUnique("model", t.Models, itemPath(path+".models"))
		j.checkResidency(t.Residency, carried, path+".residency")
		if t.Weight != 0 {
			j.checkNumber(path+".weight", "the weight", t.Weight, 0.001, 1000)
		}
		if why := nameProblem(t.PrefixGroup); t.PrefixGroup != "" && why != "" {
			j.addProblem(path+".prefix_group", "prefix_group: "+why, nameHint)
		}
	}
	j.checkUnique("tenant", namesOf(list, func(t *Tenant) string { return t.Name }), itemNamePath("$.tenants"))
	j.checkSharedKeys(list)
}

// residencyLabels lists all jurisdictions of the regions.
func (j *validator) residencyLabels() []string {
	var all []string
	for i := range j.spec.Regions {
		all = append(all, j.spec.Regions[i].Residency...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// checkResidency reports a jurisdiction that no region has: the tenant could be served nowhere, or in fewer
// regions than intended.
func (j *validator) checkResidency(list, carried []string, path string) {
	for i, label := range list {
		if slices.Contains(carried, label) {
			continue
		}
		hint := strict.SuggestName(label, carried, "jurisdictions")
		if slices.Contains(j.regions, label) {
			hint = fmt.Sprintf("%q is a region: residency names jurisdictions, which regions carry in their own residency list", label)
		}
		j.problems = append(j.problems, Problem{Path: itemPath(path)(i), DependsOn: "$.regions[*].residency", Reason: fmt.Sprintf("no region carries the residency %q", label), Hint: hint})
	}
	j.checkUnique("jurisdiction", list, itemPath(path))
}

// checkKeys checks hashed keys. No message shows any part of a value, which may be a key in plain text.
func (j *validator) checkKeys(list []string, path string) {
	for i, k := range list {
		if _, ok := parseKeyHash(k); ok {
			continue
		}
		reason, hint := keyProblem(k)
		j.addProblem(itemPath(path)(i), reason, hint)
	}
}

func keyProblem(k string) (reason, hint string) {
	const howto = "put in what `spillway config key` prints for it: sha256: and 64 hex digits"
	digits, ok := strings.CutPrefix(strings.ToLower(k), keyPrefix)
	switch {
	case k == "":
		return "the key is empty", howto
	case !ok && len(k) == 64 && isHex(k):
		return "the key's hash does not say how it was made", "write sha256: in front of the digits"
	case !ok:
		return "the key stands here in plain text, where everyone who reads the spec sees it", "replace the key, for it is known now, and " + howto
	case !isHex(digits):
		return "the key's hash has characters that are not hex digits", howto
	case len(digits) != 64:
		return fmt.Sprintf("the key's hash has %d hex digits instead of 64", len(digits)), howto
	}
	return "the key's hash has capital letters", "write it in lower case"
}

func isHex(s string) bool {
	_, err := hex.DecodeString(s + strings.Repeat("0", len(s)%2))
	return err == nil
}

// checkSharedKeys reports a duplicate key, without showing it.
func (j *validator) checkSharedKeys(list []Tenant) {
	first := map[string]string{}
	for i := range list {
		for k, key := range list[i].allKeys() {
			path := fmt.Sprintf("$.tenants[%d].keys[%d]", i, k)
			if t := k - len(list[i].Keys); t >= 0 {
				path = fmt.Sprintf("$.tenants[%d].timed_keys[%d].hash", i, t)
			}
			if _, ok := parseKeyHash(key); !ok {
				continue
			}
			if at, ok := first[key]; ok {
				j.addProblem(path, "this key is there twice", "it also stands at "+at+": give each tenant keys of its own")
				continue
			}
			first[key] = strings.TrimPrefix(path, "$.")
		}
	}
}

func (j *validator) checkLimits(l *TenantLimits, path string) {
	if l.Scope != ScopeRegion && l.Scope != ScopeGlobal {
		j.addProblem(path+".scope", fmt.Sprintf("unknown scope %q", l.Scope), strict.SuggestName(l.Scope, []string{ScopeRegion, ScopeGlobal}, "scopes"))
	}
	for _, f := range []struct {
		key   string
		value int
	}{{"requests_per_minute", l.RequestsPerMinute}, {"tokens_per_minute", l.TokensPerMinute}, {"concurrency", l.Concurrency}} {
		switch {
		case f.value < 0:
			j.addProblem(path+"."+f.key, fmt.Sprintf("%s %d is negative", f.key, f.value), "write 0 or leave it out for no limit")
		case f.value > maxLimitValue:
			j.addProblem(path+"."+f.key, fmt.Sprintf("%s %d is out of range", f.key, f.value), "leave it out for no limit")
		}
	}
}
