package modelroute

import (
	"iter"
	"slices"

	"github.com/spillway-lb/spillway/internal/spec"
)

// FindPool returns the first pool that a request matches, and its bit; nil and 0 if the request goes to workers
// outside pools.
func FindPool(s *spec.Spec, tenant, model string, c spec.Class) (p *spec.WorkerPool, bit uint64) {
	for i := range s.Pools[:min(len(s.Pools), spec.MaxPools)] {
		p := &s.Pools[i]
		if emptyOrContains(p.Tenants, tenant) && emptyOrContains(p.Models, model) && emptyOrContains(p.Classes, c) {
			return p, 1 << i
		}
	}
	return nil, 0
}

func emptyOrContains[T comparable](list []T, x T) bool {
	return len(list) == 0 || slices.Contains(list, x)
}

// PoolsForModel yields the pools whose requests may be for a model, by name, with their bits.
func PoolsForModel(s *spec.Spec, model string) iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		for i := range s.Pools[:min(len(s.Pools), spec.MaxPools)] {
			if p := &s.Pools[i]; emptyOrContains(p.Models, model) && !yield(p.Name, 1<<i) {
				return
			}
		}
	}
}

// PoolsForLabels returns the pools of a worker with these labels, as bits; 0 if it is in none.
func PoolsForLabels(s *spec.Spec, labels map[string]string) (bits uint64) {
	for i := range s.Pools[:min(len(s.Pools), spec.MaxPools)] {
		if hasLabels(labels, s.Pools[i].Labels) {
			bits |= 1 << i
		}
	}
	return bits
}

// IsDedicated reports whether a worker in these pools is no general capacity for a model: each of its pools
// that matches requests of the model is restricted to certain tenants.
func IsDedicated(s *spec.Spec, pools uint64, model string) bool {
	for i := range s.Pools[:min(len(s.Pools), spec.MaxPools)] {
		if p := &s.Pools[i]; pools&(1<<i) != 0 && len(p.Tenants) == 0 && emptyOrContains(p.Models, model) {
			return false
		}
	}
	return pools != 0
}

func hasLabels(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return len(want) > 0
}
