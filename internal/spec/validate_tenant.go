package spec

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

func (j *judge) tenants() {
	list := j.spec.Tenants
	carried := j.carried()
	for i := range list {
		t, path := &list[i], item("$.tenants")(i)
		if why := badWord(t.Name); why != "" {
			j.bad(path+".name", "tenant: "+why, wordHint)
		}
		if t.Class >= NumClasses {
			j.bad(path+".class", fmt.Sprintf("unknown class %s", t.Class), "write interactive, standard or batch")
		}
		j.keys(t.Keys, path+".keys")
		j.timedKeys(t.TimedKeys, path+".timed_keys")
		j.limits(&t.Limits, path+".limits")
		j.budget(&t.Budget, path+".budget")
		j.known("region", "$.regions[*].name", t.Regions, j.regions, item(path+".regions"))
		j.distinct("region", t.Regions, item(path+".regions"))
		j.known("model", "$.models[*].name", t.Models, j.askable, item(path+".models"))
		j.distinct("model", t.Models, item(path+".models"))
		j.residency(t.Residency, carried, path+".residency")
		if t.Weight != 0 {
			j.number(path+".weight", "the weight", t.Weight, 0.001, 1000)
		}
		if why := badWord(t.PrefixGroup); t.PrefixGroup != "" && why != "" {
			j.bad(path+".prefix_group", "prefix_group: "+why, wordHint)
		}
	}
	j.distinct("tenant", names(list, func(t *Tenant) string { return t.Name }), itemName("$.tenants"))
	j.sharedKeys(list)
}

// carried lists every jurisdiction that some region counts as.
func (j *judge) carried() []string {
	var all []string
	for i := range j.spec.Regions {
		all = append(all, j.spec.Regions[i].Residency...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// residency reports a jurisdiction that no region carries: the tenant could be served nowhere, or in fewer places than
// the operator believes.
func (j *judge) residency(list, carried []string, path string) {
	for i, label := range list {
		if slices.Contains(carried, label) {
			continue
		}
		hint := strict.Suggest(label, carried, "jurisdictions")
		if slices.Contains(j.regions, label) {
			hint = fmt.Sprintf("%q is a region: residency names jurisdictions, which regions carry in their own residency list", label)
		}
		j.found = append(j.found, Problem{Path: item(path)(i), Needs: "$.regions[*].residency", Reason: fmt.Sprintf("no region carries the residency %q", label), Hint: hint})
	}
	j.distinct("jurisdiction", list, item(path))
}

// keys judges hashed keys. No message shows any part of one: what stands there may be a key in plain text.
func (j *judge) keys(list []string, path string) {
	for i, k := range list {
		if _, ok := parseKeyHash(k); ok {
			continue
		}
		reason, hint := badKey(k)
		j.bad(item(path)(i), reason, hint)
	}
}

func badKey(k string) (reason, hint string) {
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

// sharedKeys reports a key that stands twice, without showing it.
func (j *judge) sharedKeys(list []Tenant) {
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
				j.bad(path, "this key is there twice", "it also stands at "+at+": give each tenant keys of its own")
				continue
			}
			first[key] = strings.TrimPrefix(path, "$.")
		}
	}
}

func (j *judge) limits(l *Limits, path string) {
	if l.Scope != ScopeRegion && l.Scope != ScopeGlobal {
		j.bad(path+".scope", fmt.Sprintf("unknown scope %q", l.Scope), strict.Suggest(l.Scope, []string{ScopeRegion, ScopeGlobal}, "scopes"))
	}
	for _, f := range []struct {
		key   string
		value int
	}{{"requests_per_minute", l.RequestsPerMinute}, {"tokens_per_minute", l.TokensPerMinute}, {"concurrency", l.Concurrency}} {
		switch {
		case f.value < 0:
			j.bad(path+"."+f.key, fmt.Sprintf("%s %d is negative", f.key, f.value), "write 0 or leave it out for no limit")
		case f.value > maxLimit:
			j.bad(path+"."+f.key, fmt.Sprintf("%s %d is out of range", f.key, f.value), "leave it out for no limit")
		}
	}
}
