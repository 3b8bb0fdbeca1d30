package spec

// TakesKeys reports whether callers must prove who they are: some tenant has a key, or there is an issuer of tokens.
func (s *Spec) TakesKeys() bool {
	for i := range s.Tenants {
		if len(s.Tenants[i].Keys)+len(s.Tenants[i].TimedKeys) > 0 {
			return true
		}
	}
	return len(s.Issuers) > 0
}

// LimitsCallers reports whether the spec declares anything about callers that only a gateway enforces: keys, issuers,
// limits, budgets, regions or residency.
func (s *Spec) LimitsCallers() bool {
	if s.TakesKeys() {
		return true
	}
	for i := range s.Tenants {
		t := &s.Tenants[i]
		if t.Limits != (Limits{Scope: t.Limits.Scope}) || t.Budget.TokensPerDay > 0 || t.Budget.DollarsPerDay > 0 || len(t.Residency)+len(t.Regions) > 0 {
			return true
		}
	}
	return false
}

// Unreachable lists the tenants that no request can belong to in a spec without a global tier: they have no key, there is
// no issuer of tokens, and they are not the tenant of callers without a key.
func (s *Spec) Unreachable() (names []string) {
	if len(s.Issuers) > 0 {
		return nil
	}
	keys := s.TakesKeys()
	for i := range s.Tenants {
		t := &s.Tenants[i]
		if len(t.Keys)+len(t.TimedKeys) == 0 && (keys || t.Name != TenantAlone) {
			names = append(names, t.Name)
		}
	}
	return names
}

// maxNames is how many models a spec may have.
const maxNames = 1000

// Complete returns a copy of a spec without a global tier that declares what its file leaves out: the region where it
// declares none, the tenant of callers without a key where it takes no keys, and the models that workers serve under the
// default settings. It returns s itself when nothing is missing. Names that no spec may hold are left out.
func (s *Spec) Complete(region string, models []string) *Spec {
	out := *s
	changed := false
	if len(s.Regions) == 0 {
		out.Regions, changed = []Region{{Name: region}}, true
	}
	if !s.TakesKeys() && s.Tenant(TenantAlone) == nil {
		out.Tenants = append(s.Tenants[:len(s.Tenants):len(s.Tenants)], withDefaults(&Spec{Tenants: []Tenant{{Name: TenantAlone}}}).Tenants...)
		changed = true
	}
	out.Models = s.Models[:len(s.Models):len(s.Models)]
	for _, name := range models {
		if s.ModelNamed(name) != nil || s.AliasNamed(name) != nil || badWord(name) != "" || len(out.Models) >= maxNames {
			continue
		}
		out.Models, changed = append(out.Models, withDefaults(&Spec{Models: []Model{{Name: name}}}).Models...), true
	}
	if !changed {
		return s
	}
	out.index = newIndex(&out)
	return &out
}

// withDefaults fills what a spec built in Go leaves out; an empty spec when that is not valid.
func withDefaults(s *Spec) *Spec {
	out, err := DecodeAlone("defaults", Encode(s))
	if err != nil {
		return &Spec{}
	}
	return out
}
