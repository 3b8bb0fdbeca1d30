package modelroute

import (
	"iter"

	"github.com/spillway-lb/spillway/internal/spec"
)

// FallbackModels returns the models that may answer a request of a tenant instead of m, the nearest first: m's
// fallback, that model's own fallback and so on, as far as the tenant allows fallbacks and may use the model by
// name. A nil tenant or model has none.
func FallbackModels(s *spec.Spec, t *spec.Tenant, m *spec.Model) iter.Seq[*spec.Model] {
	return func(yield func(*spec.Model) bool) {
		if t == nil || !t.Fallback {
			return
		}
		for range s.Models { // the chains of a validated spec end; a hand-made one might be cyclic
			if m == nil || m.Fallback == "" {
				return
			}
			if m = s.FindModel(m.Fallback); m == nil || t.MayUseModel(m.Name, m.Name) && !yield(m) {
				return
			}
		}
	}
}
