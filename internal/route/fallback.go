package route

import (
	"iter"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Fallbacks are the models that may answer a tenant's request instead of m, the nearest first: m's fallback, that one's
// own and so on, as far as the tenant allows fallbacks and may use the model by name. A nil tenant or model has none.
func Fallbacks(s *spec.Spec, t *spec.Tenant, m *spec.Model) iter.Seq[*spec.Model] {
	return func(yield func(*spec.Model) bool) {
		if t == nil || !t.Fallback {
			return
		}
		for range s.Models { // a spec's chains end; a value made by hand might not
			if m == nil || m.Fallback == "" {
				return
			}
			if m = s.ModelNamed(m.Fallback); m == nil || t.MayUse(m.Name, m.Name) && !yield(m) {
				return
			}
		}
	}
}
