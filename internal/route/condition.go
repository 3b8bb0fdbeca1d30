package route

import (
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/spillway-lb/spillway/internal/spec"
)

// meets says whether the request meets all of a target's conditions.
func (c *contest) meets(t *spec.Target) bool {
	w := &t.When
	return (w.Header.Name == "" || has(c.ask.Header, &w.Header)) &&
		(len(w.Tenants) == 0 || slices.Contains(w.Tenants, c.ask.Tenant)) &&
		(w.Cohort == 0 || inCohort(c.alias.Name, c.ask.Tenant, w.Cohort))
}

// inCohort says whether a tenant is in an alias's cohort of percent. Each alias draws its cohorts anew.
func inCohort(alias, tenant string, percent float64) bool {
	h := mix(mix(xxhash.Sum64String(alias)) ^ xxhash.Sum64String(tenant))
	return 100*unit(h) < percent
}

// has looks a header up without regard to case, in whatever way the spec spells it.
func has(h map[string][]string, want *spec.HeaderIs) bool {
	lines, ok := h[want.Name]
	if !ok {
		for name, l := range h {
			if strings.EqualFold(name, want.Name) {
				lines = l
				break
			}
		}
	}
	return len(lines) > 0 && (want.Value == "" || slices.Contains(lines, want.Value))
}
