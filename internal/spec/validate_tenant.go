package spec

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// maxLimitValue bounds limits, so that thousandths of them are exact.
const maxLimitValue = 1 << 40

// tenantValidator checks tenants: keys, rights, limits and budgets.
type tenantValidator struct{ *validation }

func (v *tenantValidator) checkBudget(b *Budget, path string) {
	if b.TokensPerDay < 0 || b.TokensPerDay > maxLimitValue {
		v.addProblem(path+".tokens_per_day", fmt.Sprintf("tokens_per_day %d is out of range", b.TokensPerDay), "write tokens, or leave it out for no limit")
	}
	if !(b.DollarsPerDay >= 0 && b.DollarsPerDay <= 1e9) {
		v.addProblem(path+".dollars_per_day", fmt.Sprintf("dollars_per_day %v is out of range", b.DollarsPerDay), "write dollars, or leave it out for no limit")
	}
	if b.WhenSpent != SpentStop && b.WhenSpent != SpentThrottle {
		v.addProblem(path+".when_spent", fmt.Sprintf("unknown word %q", b.WhenSpent), strict.SuggestName(b.WhenSpent, []string{SpentStop, SpentThrottle}, "words"))
	}
	v.checkDuration(path+".day_offset", "day_offset", b.DayOffset, -14*time.Hour, 14*time.Hour)
}

// checkTimedKeys checks hashed keys with a validity period. No message shows any part of a key.
func (v *tenantValidator) checkTimedKeys(list []TimedKey, path string) {
	for i := range list {
		k, at := &list[i], itemPath(path)(i)
		if _, ok := parseKeyHash(k.Hash); !ok {
			reason, hint := keyProblem(k.Hash)
			v.addProblem(at+".hash", reason, hint)
		}
		if from, to := k.NotBefore.AsTime(), k.NotAfter.AsTime(); !to.IsZero() && !to.After(from) {
			v.addProblem(at+".not_after", "the key ends before it begins", "write a later time than not_before")
		}
	}
}

// keyHash returns the hash of the tenant's k-th key, timed keys last.
func (t *Tenant) keyHash(k int) string {
	if k < len(t.Keys) {
		return t.Keys[k]
	}
	return t.TimedKeys[k-len(t.Keys)].Hash
}

func (v *tenantValidator) checkTenants() {
	list := v.spec.Tenants
	carried := v.residencyLabels()
	for i := range list {
		t, path := &list[i], itemPath("$.tenants")(i)
		if why := nameProblem(t.Name); why != "" {
			v.addProblem(path+".name", "tenant: "+why, nameHint)
		}
		if t.Class >= NumClasses {
			v.addProblem(path+".class", fmt.Sprintf("unknown class %s", t.Class), "write interactive, standard or batch")
		}
		v.checkKeys(t.Keys, path+".keys")
		v.checkTimedKeys(t.TimedKeys, path+".timed_keys")
		v.checkLimits(&t.Limits, path+".limits")
		v.checkBudget(&t.Budget, path+".budget")
		v.checkReferences("region", "$.regions[*].name", t.Regions, v.regions, itemPath(path+".regions"))
		v.checkUnique("region", t.Regions, itemPath(path+".regions"))
		v.checkReferences("model", "$.models[*].name", t.Models, v.requestNames, itemPath(path+".models"))
		v.checkUnique("model", t.Models, itemPath(path+".models"))
		v.checkResidency(t.Residency, carried, path+".residency")
		if t.Weight != 0 {
			v.checkNumber(path+".weight", "the weight", t.Weight, 0.001, 1000)
		}
		if why := nameProblem(t.PrefixGroup); t.PrefixGroup != "" && why != "" {
			v.addProblem(path+".prefix_group", "prefix_group: "+why, nameHint)
		}
	}
	v.checkUnique("tenant", namesOf(list, func(t *Tenant) string { return t.Name }), itemNamePath("$.tenants"))
	v.checkSharedKeys(list)
}

// residencyLabels lists all jurisdictions of the regions.
func (v *tenantValidator) residencyLabels() []string {
	var all []string
	for i := range v.spec.Regions {
		all = append(all, v.spec.Regions[i].Residency...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// checkResidency reports a jurisdiction that no region has: the tenant could be served nowhere, or in fewer
// regions than intended.
func (v *tenantValidator) checkResidency(list, carried []string, path string) {
	for i, label := range list {
		if slices.Contains(carried, label) {
			continue
		}
		hint := strict.SuggestName(label, carried, "jurisdictions")
		if slices.Contains(v.regions, label) {
			hint = fmt.Sprintf("%q is a region: residency lists jurisdictions, and each region lists its own under residency", label)
		}
		v.reportProblem(Problem{Path: itemPath(path)(i), DependsOn: "$.regions[*].residency", Reason: fmt.Sprintf("no region has the residency %q", label), Hint: hint})
	}
	v.checkUnique("jurisdiction", list, itemPath(path))
}

// checkKeys checks hashed keys. No message shows any part of a value, which may be a key in plain text.
func (v *tenantValidator) checkKeys(list []string, path string) {
	for i, k := range list {
		if _, ok := parseKeyHash(k); ok {
			continue
		}
		reason, hint := keyProblem(k)
		v.addProblem(itemPath(path)(i), reason, hint)
	}
}

func keyProblem(k string) (reason, hint string) {
	const howto = "write what `spillway config key` prints: sha256: and 64 hex digits"
	digits, ok := strings.CutPrefix(strings.ToLower(k), keyPrefix)
	switch {
	case k == "":
		return "the key is empty", howto
	case !ok && len(k) == 64 && isHex(k):
		return "the key's hash has no sha256: prefix", "write sha256: in front of the digits"
	case !ok:
		return "the key is in plain text: everyone who reads the spec can read it", "replace the key, because it is no longer secret, and " + howto
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
func (v *tenantValidator) checkSharedKeys(list []Tenant) {
	type place struct{ tenant, key int }
	pathOf := func(at place) string {
		if t := at.key - len(list[at.tenant].Keys); t >= 0 {
			return fmt.Sprintf("$.tenants[%d].timed_keys[%d].hash", at.tenant, t)
		}
		return fmt.Sprintf("$.tenants[%d].keys[%d]", at.tenant, at.key)
	}
	first := make(map[string]place, len(list))
	for i := range list {
		for k, n := 0, len(list[i].Keys)+len(list[i].TimedKeys); k < n; k++ {
			key := list[i].keyHash(k)
			if _, ok := parseKeyHash(key); !ok {
				continue
			}
			if at, ok := first[key]; ok {
				v.addProblem(pathOf(place{i, k}), "duplicate key", "the first is at "+strings.TrimPrefix(pathOf(at), "$.")+": give each tenant its own keys")
				continue
			}
			first[key] = place{i, k}
		}
	}
}

func (v *tenantValidator) checkLimits(l *TenantLimits, path string) {
	if l.Scope != ScopeRegion && l.Scope != ScopeGlobal {
		v.addProblem(path+".scope", fmt.Sprintf("unknown scope %q", l.Scope), strict.SuggestName(l.Scope, []string{ScopeRegion, ScopeGlobal}, "scopes"))
	}
	for _, f := range []struct {
		key   string
		value int
	}{{"requests_per_minute", l.RequestsPerMinute}, {"tokens_per_minute", l.TokensPerMinute}, {"concurrency", l.Concurrency}} {
		switch {
		case f.value < 0:
			v.addProblem(path+"."+f.key, fmt.Sprintf("%s %d is negative", f.key, f.value), "write 0 or leave it out for no limit")
		case f.value > maxLimitValue:
			v.addProblem(path+"."+f.key, fmt.Sprintf("%s %d is out of range", f.key, f.value), "leave it out for no limit")
		}
	}
}
