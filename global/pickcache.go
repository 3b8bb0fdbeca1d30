package global

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
)

// pickCache caches the region picked for a service and cell whose clients all go to the same region: a pick then
// costs one memory load. Snapshots share it until something changes that a pick depends on.
type pickCache struct {
	table       *steer.Table
	drained     steer.RegionSet
	draining    steer.RegionSet
	unavailable []steer.RegionSet
	byService   []atomic.Pointer[cellPicks]
	atlas       *geo.Atlas
	madeAt      time.Time
	scopeMaps   []atomic.Pointer[geo.ScopeMap] // by service, see scopemap.go
}

// cellPicks holds one entry for each cell, and the last one for clients without a cell; 0 is unknown.
type cellPicks [geo.NumCells + 1]atomic.Uint32

// Entries of cellPicks: the region plus one, or cachedPicksDiffer if clients differ.
const (
	cachedPickForced  = 1 << 30
	cachedPicksDiffer = 1 << 31
	cachedRegionMask  = 1<<16 - 1
)

// maxCachedServices bounds the memory: 64 KiB for each service with queries. Later services are picked without the
// cache.
const maxCachedServices = 256

// reuseFor returns m if it is valid for the snapshot, or a new cache.
func (m *pickCache) reuseFor(v *nodeSnapshot) *pickCache {
	if m != nil && m.table == v.Table && m.atlas == v.atlas && m.drained == v.Drained && m.draining == v.Draining && slices.Equal(m.unavailable, v.Unavailable) {
		return m
	}
	return &pickCache{
		table: v.Table, drained: v.Drained, draining: v.Draining, unavailable: v.Unavailable,
		byService: make([]atomic.Pointer[cellPicks], min(len(v.Unavailable), maxCachedServices)),
		scopeMaps: make([]atomic.Pointer[geo.ScopeMap], min(len(v.Unavailable), maxScopeMaps)),
		madeAt:    v.MadeAt, atlas: v.atlas,
	}
}

// cellEntry returns the entry of a cell; nil: not cached.
func (m *pickCache) cellEntry(service int, cell int32) *atomic.Uint32 {
	if m == nil || service >= len(m.byService) {
		return nil
	}
	c := m.byService[service].Load()
	if c == nil {
		c = new(cellPicks)
		if !m.byService[service].CompareAndSwap(nil, c) {
			c = m.byService[service].Load()
		}
	}
	if cell < 0 {
		cell = geo.NumCells
	}
	return &c[cell]
}

// encodePick returns the entry for a pick.
func encodePick(region int, split, forced bool) uint32 {
	switch {
	case split || region < 0:
		return cachedPicksDiffer
	case forced:
		return uint32(region+1) | cachedPickForced
	}
	return uint32(region + 1)
}
