package local

import (
	"slices"
	"strings"
)

// rows are the floor's workers and pools by name. What is done to several of them is done in this order and not in a
// map's, so that the same things in the same order have the same outcome: the simulator replays them.
type rows struct {
	workers []*worker
	pools   []*pool
}

// inOrder are the declared workers by name.
func (f *floor) inOrder() []*worker {
	if f.rows.workers == nil {
		for _, w := range f.workers {
			f.rows.workers = append(f.rows.workers, w)
		}
		slices.SortFunc(f.rows.workers, func(a, b *worker) int { return strings.Compare(a.declared.Name, b.declared.Name) })
	}
	return f.rows.workers
}

// models are the pools by model.
func (f *floor) models() []*pool {
	if len(f.rows.pools) != len(f.pools) { // a pool stays for good
		f.rows.pools = nil
		for _, p := range f.pools {
			f.rows.pools = append(f.rows.pools, p)
		}
		slices.SortFunc(f.rows.pools, func(a, b *pool) int { return strings.Compare(a.model, b.model) })
	}
	return f.rows.pools
}
