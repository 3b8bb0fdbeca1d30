package spec

import (
	"fmt"
	"strings"
)

// Alias is a name that resolves to weighted models. With one target at weight 100 and another at 0, swapping the two
// weights moves every new request at once (blue/green); a small weight on a second target is a canary; targets with
// conditions are an A/B test. A caller may insist on one target with the header X-Spillway-Target.
type Alias struct {
	// Name is what clients ask for. It may not be a model's name.
	Name string `yaml:"name"`
	// Targets are the models behind it.
	Targets []Target `yaml:"targets"`
	// Sticky says what keeps its target while the weights stay: "session" (the header X-Session-Id, else the body's user;
	// a request with neither goes anywhere by weight), "client" (the same, else tenant and client address), "tenant" (all
	// of a tenant's requests together) or "none". A change of weights moves no more sessions than it must. Default session.
	Sticky string `yaml:"sticky" default:"session"`
}

// What alias.sticky may say.
const (
	StickySession = "session"
	StickyClient  = "client"
	StickyTenant  = "tenant"
	StickyNone    = "none"
)

// Target is one model behind an alias.
type Target struct {
	// Model is a model's name, never another alias.
	Model string `yaml:"model"`
	// Weight is the model's part of the requests, relative to the other targets. 0 sends nothing there.
	Weight float64 `yaml:"weight"`
	// When limits the target to requests that meet its conditions. Such a request goes to targets whose conditions it
	// meets and to no other, by their weights; everybody else goes by the weights of the targets without conditions.
	When When `yaml:"when"`
}

// When are a target's conditions. All that are given must hold.
type When struct {
	// Header is a header of the request.
	Header HeaderIs `yaml:"header"`
	// Tenants are those whose requests are meant.
	Tenants []string `yaml:"tenants"`
	// Cohort is a share of all tenants, in percent. Who is in it is settled by a hash of alias and tenant: a larger cohort
	// holds all of a smaller one.
	Cohort float64 `yaml:"cohort"`
}

// HeaderIs is a condition on a header.
type HeaderIs struct {
	// Name of the header, such as X-Cohort. Case does not matter.
	Name string `yaml:"name"`
	// Value that one of the header's lines must have, exactly. Empty: any.
	Value string `yaml:"value"`
}

// Any reports whether there is a condition at all.
func (w *When) Any() bool { return w.Header.Name != "" || len(w.Tenants) > 0 || w.Cohort != 0 }

// String is the conditions on one line, empty when there are none.
func (w *When) String() string {
	var parts []string
	if h := &w.Header; h.Name != "" && h.Value != "" {
		parts = append(parts, fmt.Sprintf("header %s is %q", h.Name, h.Value))
	} else if h.Name != "" {
		parts = append(parts, "header "+h.Name+" is there")
	}
	if len(w.Tenants) > 0 {
		parts = append(parts, "tenant is "+strings.Join(w.Tenants, " or "))
	}
	if w.Cohort != 0 {
		parts = append(parts, fmt.Sprintf("tenant is in the cohort of %v %%", w.Cohort))
	}
	return strings.Join(parts, " and ")
}

// key tells an alias's targets apart: one model may stand there with different conditions.
func (t *Target) key() string {
	if !t.When.Any() {
		return t.Model
	}
	return t.Model + " when " + t.When.String()
}

// Pool is workers set apart: they take the pool's requests and nobody else's.
type Pool struct {
	// Name stands in messages and explanations.
	Name string `yaml:"name"`
	// Labels that a worker must carry, all of them, to be the pool's. A worker may be in several pools.
	Labels map[string]string `yaml:"labels"`
	// Tenants whose requests are the pool's. Empty means all.
	Tenants []string `yaml:"tenants"`
	// Models whose requests are the pool's, as aliases resolve. Empty means all.
	Models []string `yaml:"models"`
	// Classes of requests that are the pool's. Empty means all.
	Classes []Class `yaml:"classes"`
	// Overflow lets the pool's requests go to workers of no pool as well while none of its own has room.
	Overflow bool `yaml:"overflow"`
}

// MaxPools bounds the pools: a worker's and a request's are one word of bits.
const MaxPools = 64
