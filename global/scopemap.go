package global

import (
	"context"
	"net/netip"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
)

// A resolver caches an answer for the network of the answer's scope, so scopes are made as wide as possible: for each
// service with queries, adjacent networks that go to one region are merged. The map for that is built in the
// background, once its inputs have been stable for a moment; until then scopes are those of cells. Both give the same
// answers with different scopes.
const (
	scopeMapDelay      = 2 * time.Second
	scopeMapRestFactor = 10 // the pause after building, as a multiple of its duration
	maxScopeMaps       = 32 // services with a map, a few MiB each
)

// Values of a scope map: from scopeDiffer on, scopeDiffer plus a cell whose clients differ; below, entries of a
// cellPicks with the mark of a forced answer moved down.
const (
	scopeForced = 1 << 16
	scopeDiffer = 1 << 17
)

// buildScopeMapsLoop builds maps until ctx ends.
func buildScopeMapsLoop(ctx context.Context, current *currentSnapshot) {
	for sleepFor(ctx, scopeMapDelay/4) {
		v := current.Load()
		if v == nil || v.pickCache == nil || v.MadeAt.Sub(v.pickCache.madeAt) < scopeMapDelay {
			continue
		}
		service := v.nextUnmappedService()
		if service < 0 {
			continue
		}
		begin := time.Now()
		v.pickCache.scopeMaps[service].Store(v.buildScopeMap(service))
		if !sleepFor(ctx, scopeMapRestFactor*time.Since(begin)) {
			return
		}
	}
}

// nextUnmappedService returns a service with queries and without a map; -1: none.
func (v *nodeSnapshot) nextUnmappedService() int {
	for i := range v.pickCache.scopeMaps {
		if v.pickCache.scopeMaps[i].Load() == nil && v.pickCache.byService[i].Load() != nil {
			return i
		}
	}
	return -1
}

// buildScopeMap builds the map of one service.
func (v *nodeSnapshot) buildScopeMap(service int) *geo.ScopeMap {
	known := map[int32]int32{}
	return v.atlas.BuildScopeMap(func(cell int32) int32 {
		value, ok := known[cell]
		if !ok {
			value = v.scopeValue(service, cell)
			known[cell] = value
		}
		return value
	})
}

// scopeValue returns the map's value for a cell.
func (v *nodeSnapshot) scopeValue(service int, cell int32) int32 {
	q := v.BuildQuery(service, cell, netip.IPv4Unspecified(), steer.RegionSet{})
	c := v.Table.PickRegion(&q)
	forced, differ := v.IsForcedByDrain(&q, c.Region)
	switch {
	case c.Split || differ || c.Region < 0:
		return scopeDiffer + cell + 1
	case forced:
		return int32(c.Region+1) | scopeForced
	}
	return int32(c.Region + 1)
}

// findInScopeMap looks a client up in the service's map, or in that of cells. It returns the region, or -1 and the
// cell if clients differ or the region is unknown.
func (v *nodeSnapshot) findInScopeMap(service int, client netip.Addr) (region int, forced bool, cell int32, scope uint8) {
	if v.pickCache == nil || service >= len(v.pickCache.scopeMaps) {
		cell, scope = v.atlas.FindCell(client)
		return -1, false, cell, scope
	}
	m := v.pickCache.scopeMaps[service].Load()
	if m == nil {
		cell, scope = v.atlas.FindCell(client)
		return -1, false, cell, scope
	}
	value, scope := m.FindValue(client)
	if value >= scopeDiffer || value == 0 {
		return -1, false, max(value-scopeDiffer-1, geo.NoCell), scope
	}
	return int(value&cachedRegionMask) - 1, value&scopeForced != 0, geo.NoCell, scope
}
