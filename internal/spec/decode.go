package spec

import (
	_ "embed" // the files whose comments document the keys

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// Problem is one mistake in a spec, with the path of its value.
type Problem = strict.Problem

// Error holds all mistakes of one text with their positions, as text and as JSON.
type Error = strict.Error

// Decode parses a spec from YAML: strictly, with defaults applied, validated, ready for lookups. name
// identifies the text in messages. An error is always an *Error with every mistake by line.
func Decode(name string, text []byte) (*Spec, error) { return decodeSpec(name, text, false) }

// DecodeStandalone parses the spec of a standalone zone: DNS, regions and gateways need not be declared, and
// models only if they have settings. Everything present must be valid.
func DecodeStandalone(name string, text []byte) (*Spec, error) { return decodeSpec(name, text, true) }

// DefaultTenant is the tenant of all clients in a standalone zone. A tenant of that name in its spec sets its
// rights.
const DefaultTenant = "default"

// decodeSpec decodes a text without positions if it can. One with a mistake is decoded again, to tell where it is.
func decodeSpec(name string, text []byte, alone bool) (*Spec, error) {
	if s := decodePlainSpec(text, alone); s != nil {
		return s, nil
	}
	return decodeSpecTree(name, text, alone)
}

// decodePlainSpec returns nil for a text that is not plain YAML, or not a valid spec.
func decodePlainSpec(text []byte, alone bool) *Spec {
	s := &Spec{}
	if !strict.DecodePlain(text, s) {
		return nil
	}
	s.fillDerived()
	if len(s.findProblems(alone)) > 0 {
		return nil
	}
	s.index = newSpecIndex(s)
	return s
}

func decodeSpecTree(name string, text []byte, alone bool) (*Spec, error) {
	doc, err := strict.Parse(name, text)
	if err != nil {
		return nil, err
	}
	s := &Spec{}
	doc.Decode(s)
	s.fillDerived()
	doc.ReportProblems(s.findProblems(alone))
	if err := doc.Err(); err != nil {
		return nil, err
	}
	s.index = newSpecIndex(s)
	return s, nil
}

// fillDerived fills in the keys whose default depends on others.
func (s *Spec) fillDerived() {
	if s.Zone.Contact == "" && s.Zone.Name != "" {
		s.Zone.Contact = "hostmaster." + s.Zone.Name
	}
}

// Encode writes a spec as canonical YAML: fixed field order, zero values omitted. Decode(Encode(s)) equals a
// decoded s; for a Spec built in Go it fills in the defaults.
func Encode(s *Spec) []byte { return strict.Encode(s) }

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

//go:embed types.go
var typesSource string

//go:embed rules.go
var rulesSource string

//go:embed queueing.go
var queueingSource string

//go:embed budget.go
var budgetSource string

//go:embed issuer.go
var issuerSource string

//go:embed dnssec.go
var dnssecSource string

//go:embed safety.go
var safetySource string

// TypeSources returns the source files that declare the spec's types. `config describe spec` prints their
// comments, so that each key is documented in one place.
func TypeSources() []string {
	return []string{typesSource, rulesSource, queueingSource, budgetSource, issuerSource, dnssecSource, safetySource}
}
