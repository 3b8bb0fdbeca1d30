package spec

// RequiresAuthentication reports whether clients must authenticate: a tenant has a key, or there is a token
// issuer.
func (s *Spec) RequiresAuthentication() bool {
	for i := range s.Tenants {
		if len(s.Tenants[i].Keys)+len(s.Tenants[i].TimedKeys) > 0 {
			return true
		}
	}
	return len(s.Issuers) > 0
}

// RestrictsCallers reports whether the spec has client settings that only a gateway enforces: keys, issuers,
// limits, budgets, regions or residency.
func (s *Spec) RestrictsCallers() bool {
	if s.RequiresAuthentication() {
		return true
	}
	for i := range s.Tenants {
		t := &s.Tenants[i]
		if t.Limits != (TenantLimits{Scope: t.Limits.Scope}) || t.Budget.TokensPerDay > 0 || t.Budget.DollarsPerDay > 0 || len(t.Residency)+len(t.Regions) > 0 {
			return true
		}
	}
	return false
}

// UnreachableTenants lists the tenants without any possible request in a spec without a global tier: they have
// no key, there is no token issuer, and they are not the tenant of clients without a key.
func (s *Spec) UnreachableTenants() (names []string) {
	if len(s.Issuers) > 0 {
		return nil
	}
	keys := s.RequiresAuthentication()
	for i := range s.Tenants {
		t := &s.Tenants[i]
		if len(t.Keys)+len(t.TimedKeys) == 0 && (keys || t.Name != DefaultTenant) {
			names = append(names, t.Name)
		}
	}
	return names
}

// maxSpecModels bounds the models of a spec.
const maxSpecModels = 1000

// CompleteStandalone returns a copy of a spec without a global tier, with missing parts added: the region if
// there is none, the tenant of clients without a key if there are no keys, and the models of the workers with
// default settings. It returns s itself if nothing is missing. Invalid names are skipped.
func (s *Spec) CompleteStandalone(region string, models []string) *Spec {
	out := *s
	changed := false
	if len(s.Regions) == 0 {
		out.Regions, changed = []Region{{Name: region}}, true
	}
	if !s.RequiresAuthentication() && s.FindTenant(DefaultTenant) == nil {
		out.Tenants = append(s.Tenants[:len(s.Tenants):len(s.Tenants)], fillDefaults(&Spec{Tenants: []Tenant{{Name: DefaultTenant}}}).Tenants...)
		changed = true
	}
	out.Models = s.Models[:len(s.Models):len(s.Models)]
	for _, name := range models {
		if s.FindModel(name) != nil || s.FindAlias(name) != nil || nameProblem(name) != "" || len(out.Models) >= maxSpecModels {
			continue
		}
		out.Models, changed = append(out.Models, fillDefaults(&Spec{Models: []Model{{Name: name}}}).Models...), true
	}
	if !changed {
		return s
	}
	out.index = newSpecIndex(&out)
	return &out
}

// fillDefaults fills in the defaults of a spec built in Go; it returns an empty spec if that is invalid.
func fillDefaults(s *Spec) *Spec {
	out, err := DecodeStandalone("defaults", Encode(s))
	if err != nil {
		return &Spec{}
	}
	return out
}
