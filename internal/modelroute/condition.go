package modelroute

import (
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/spillway-lb/spillway/internal/spec"
)

// meetsConditions reports whether the request meets all conditions of a target.
func (c *targetChoice) meetsConditions(t *spec.AliasTarget) bool {
	w := &t.When
	return (w.Header.Name == "" || hasHeader(c.query.Header, &w.Header)) &&
		(len(w.Tenants) == 0 || slices.Contains(w.Tenants, c.query.Tenant)) &&
		(w.Cohort == 0 || isInCohort(c.alias.Name, c.query.Tenant, w.Cohort))
}

// isInCohort reports whether a tenant is in an alias's cohort of percent. Cohorts of different aliases are
// independent.
func isInCohort(alias, tenant string, percent float64) bool {
	h := mixBits(mixBits(xxhash.Sum64String(alias)) ^ xxhash.Sum64String(tenant))
	return 100*toUnitInterval(h) < percent
}

// hasHeader looks up a header ignoring case, for any spelling in the spec.
func hasHeader(h map[string][]string, want *spec.HeaderCondition) bool {
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
