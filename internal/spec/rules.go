package spec

import (
	"fmt"
	"strings"
)

// Alias is a name that resolves to weighted models. With one target at weight 100 and another at 0, swapping
// the two weights moves every new request at once (blue/green); a small weight on a second target is a canary;
// targets with conditions are an A/B test. A client may insist on one target with the header X-Spillway-Target.
type Alias struct {
	// Name is the name that clients request. It must not be a model's name.
	Name string `yaml:"name"`
	// Targets are the models of the alias.
	Targets []AliasTarget `yaml:"targets"`
	// Sticky selects what keeps its target while the weights are unchanged: "session" (the header X-Session-Id,
	// else the body's user; a request with neither is distributed by weight), "client" (the same, else tenant
	// and client address), "tenant" (all requests of a tenant together) or "none". A change of weights moves as
	// few sessions as possible. Default session.
	Sticky string `yaml:"sticky" default:"session"`
}

// Values of alias.sticky.
const (
	StickySession = "session"
	StickyClient  = "client"
	StickyTenant  = "tenant"
	StickyNone    = "none"
)

// AliasTarget is one model behind an alias.
type AliasTarget struct {
	// Model is a model's name, never another alias.
	Model string `yaml:"model"`
	// Weight is the model's share of the requests, relative to the other targets. 0 sends no requests to it.
	Weight float64 `yaml:"weight"`
	// When limits the target to requests that meet its conditions. Such a request goes only to targets whose
	// conditions it meets, by their weights; other requests go by the weights of the targets without
	// conditions.
	When TargetConditions `yaml:"when"`
}

// TargetConditions are the conditions of a target. All given ones must be met.
type TargetConditions struct {
	// Header is a header of the request.
	Header HeaderCondition `yaml:"header"`
	// Tenants are the tenants of matching requests.
	Tenants []string `yaml:"tenants"`
	// Cohort is a share of all tenants, in percent. Membership is determined by a hash of alias and tenant: a
	// larger cohort contains every smaller one.
	Cohort float64 `yaml:"cohort"`
}

// HeaderCondition is a condition on a header.
type HeaderCondition struct {
	// Name of the header, such as X-Cohort. Case does not matter.
	Name string `yaml:"name"`
	// Value is the exact value of one of the header's lines. Empty: any.
	Value string `yaml:"value"`
}

// HasConditions reports whether there is any condition.
func (w *TargetConditions) HasConditions() bool {
	return w.Header.Name != "" || len(w.Tenants) > 0 || w.Cohort != 0
}

// String returns the conditions on one line, empty if there are none.
func (w *TargetConditions) String() string {
	var parts []string
	if h := &w.Header; h.Name != "" && h.Value != "" {
		parts = append(parts, fmt.Sprintf("header %s is %q", h.Name, h.Value))
	} else if h.Name != "" {
		parts = append(parts, "header "+h.Name+" is present")
	}
	if len(w.Tenants) > 0 {
		parts = append(parts, "tenant is "+strings.Join(w.Tenants, " or "))
	}
	if w.Cohort != 0 {
		parts = append(parts, fmt.Sprintf("tenant is in the cohort of %v %%", w.Cohort))
	}
	return strings.Join(parts, " and ")
}

// conditionKey identifies an alias target: one model may be listed with different conditions.
func (t *AliasTarget) conditionKey() string {
	if !t.When.HasConditions() {
		return t.Model
	}
	return t.Model + " when " + t.When.String()
}

// WorkerPool is a set of dedicated workers: they serve only the pool's requests.
type WorkerPool struct {
	// Name is used in messages and explanations.
	Name string `yaml:"name"`
	// Labels that a worker must have, all of them, to be in the pool. A worker may be in several pools.
	Labels map[string]string `yaml:"labels"`
	// Tenants of the pool's requests. Empty means all.
	Tenants []string `yaml:"tenants"`
	// Models of the pool's requests, after alias resolution. Empty means all.
	Models []string `yaml:"models"`
	// Classes of the pool's requests. Empty means all.
	Classes []Class `yaml:"classes"`
	// Overflow lets the pool's requests also use workers of no pool while none of its own has capacity.
	Overflow bool `yaml:"overflow"`
}

// MaxPools bounds the pools: those of a worker or request are the bits of one word.
const MaxPools = 64
