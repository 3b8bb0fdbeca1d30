package route

import (
	"iter"
	"slices"

	"github.com/spillway-lb/spillway/internal/spec"
)

// PoolOf is the first pool that a request matches, and its bit; nil and 0 when it goes to the workers of no pool.
func PoolOf(s *spec.Spec, tenant, model string, c spec.Class) (p *spec.Pool, bit uint64) {
	for i := range s.Pools[:min(len(s.Pools), spec.MaxPools)] {
		p := &s.Pools[i]
		if in(p.Tenants, tenant) && in(p.Models, model) && in(p.Classes, c) {
			return p, 1 << i
		}
	}
	return nil, 0
}

func in[T comparable](list []T, x T) bool { return len(list) == 0 || slices.Contains(list, x) }

// Pools yields the pools whose requests may be for a model, by name, with their bits.
func Pools(s *spec.Spec, model string) iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		for i := range s.Pools[:min(len(s.Pools), spec.MaxPools)] {
			if p := &s.Pools[i]; in(p.Models, model) && !yield(p.Name, 1<<i) {
				return
			}
		}
	}
}

// PoolsWith are the pools that a worker with these labels is in, as bits; 0 when it is in none.
func PoolsWith(s *spec.Spec, labels map[string]string) (bits uint64) {
	for i := range s.Pools[:min(len(s.Pools), spec.MaxPools)] {
		if carries(labels, s.Pools[i].Labels) {
			bits |= 1 << i
		}
	}
	return bits
}

// SetApart says that a worker in these pools is no capacity for everybody who asks for a model: each of its pools that
// the model's requests may be of is for certain tenants.
func SetApart(s *spec.Spec, pools uint64, model string) bool {
	for i := range s.Pools[:min(len(s.Pools), spec.MaxPools)] {
		if p := &s.Pools[i]; pools&(1<<i) != 0 && len(p.Tenants) == 0 && in(p.Models, model) {
			return false
		}
	}
	return pools != 0
}

func carries(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return len(want) > 0
}
