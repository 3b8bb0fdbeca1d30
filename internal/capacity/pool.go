package capacity

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/capacity/capacitypb"
)

// MaxPools bounds the pools whose capacity for a model is reported separately.
const MaxPools = 8

// FindPool returns the capacity of that pool's workers for the model, or nil if the summary has none.
func (m *ModelCapacity) FindPool(name string) *ModelCapacity {
	i, ok := slices.BinarySearchFunc(m.Pools, name, func(p *ModelCapacity, n string) int { return strings.Compare(p.Name, n) })
	if !ok {
		return nil
	}
	return m.Pools[i]
}

func checkPools(ps []*ModelCapacity) error {
	if len(ps) > MaxPools {
		return fmt.Errorf("%d pools: over the limit of %d", len(ps), MaxPools)
	}
	for i := range ps {
		if i > 0 && ps[i-1].Name >= ps[i].Name {
			return errors.New("pools are not in ascending order of name")
		}
		if len(ps[i].Pools) > 0 || len(ps[i].Prefixes) > 0 {
			return errors.New("a pool has pools or prefixes of its own")
		}
		if err := ps[i].checkModel(); err != nil {
			return fmt.Errorf("pool %d: %w", i, err)
		}
	}
	return nil
}

// normalizePools returns a valid copy.
func normalizePools(ps []*ModelCapacity) []*ModelCapacity {
	if len(ps) == 0 {
		return nil
	}
	out := copyModels(ps, MaxPools)
	for _, p := range out {
		p.Pools, p.Prefixes = nil, nil
		normalizeModel(p)
	}
	return out
}

func poolsToPB(ps []*ModelCapacity) (out []*capacitypb.Model) {
	for i := range ps {
		out = append(out, modelToPB(ps[i]))
	}
	return out
}

// poolsFromPB accepts no pools inside pools: a message could nest them to any depth.
func poolsFromPB(ps []*capacitypb.Model) (out []*ModelCapacity, err error) {
	if len(ps) > MaxPools {
		return nil, fmt.Errorf("%d pools: over the limit of %d", len(ps), MaxPools)
	}
	for _, p := range ps {
		if len(p.Pools) > 0 {
			return nil, errors.New("a pool has pools of its own")
		}
		m, err := modelFromPB(p)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}
