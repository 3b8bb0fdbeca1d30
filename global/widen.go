package global

import (
	"context"
	"net/netip"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
)

// A resolver keeps an answer for as large a network as the answer's scope says, so scopes are made as wide as they may
// be: for each service that is asked for, networks side by side that are sent to one region become one. Such a map is
// made beside the answers, once what it depends on has held for a moment; until then scopes are those of cells. Answers
// of both say the same, only for how many is told differently.
const (
	widenAfter = 2 * time.Second
	widenIdle  = 10 // times as long as it has worked, it rests
	maxWide    = 32 // services with a map, a few mebibytes each
)

// wideDiffer and above are the values of cells whose clients differ, less the cell; below are entries of a cellMemo
// with the mark of a forced answer moved down.
const (
	wideForced = 1 << 16
	wideDiffer = 1 << 17
)

// widen makes maps until ctx ends.
func (s *Server) widen(ctx context.Context) {
	for sleep(ctx, widenAfter/4) {
		v := s.view.Load()
		if v == nil || v.memo == nil || v.made.Sub(v.memo.made) < widenAfter {
			continue
		}
		service := v.narrow()
		if service < 0 {
			continue
		}
		begin := time.Now()
		v.memo.wide[service].Store(v.join(service))
		if !sleep(ctx, widenIdle*time.Since(begin)) {
			return
		}
	}
}

// narrow is a service that is asked for and has no map yet; -1: none.
func (v *View) narrow() int {
	for i := range v.memo.wide {
		if v.memo.wide[i].Load() == nil && v.memo.services[i].Load() != nil {
			return i
		}
	}
	return -1
}

// join makes the map of one service.
func (v *View) join(service int) *geo.Map {
	known := map[int32]int32{}
	return v.atlas.Join(func(cell int32) int32 {
		value, ok := known[cell]
		if !ok {
			value = v.wideValue(service, cell)
			known[cell] = value
		}
		return value
	})
}

// wideValue is what the map says of a cell.
func (v *View) wideValue(service int, cell int32) int32 {
	q := v.query(service, cell, netip.IPv4Unspecified(), steer.Set{})
	c := v.table.Pick(&q)
	forced, differ := v.forced(&q, c.Region)
	switch {
	case c.Split || differ || c.Region < 0:
		return wideDiffer + cell + 1
	case forced:
		return int32(c.Region+1) | wideForced
	}
	return int32(c.Region + 1)
}

// find looks a client up in the service's map, or in that of cells: the region, or -1 and the cell where clients differ
// or where it is not known.
func (v *View) find(service int, client netip.Addr) (region int, forced bool, cell int32, scope uint8) {
	if v.memo == nil || service >= len(v.memo.wide) {
		cell, scope = v.atlas.Spot(client)
		return -1, false, cell, scope
	}
	m := v.memo.wide[service].Load()
	if m == nil {
		cell, scope = v.atlas.Spot(client)
		return -1, false, cell, scope
	}
	value, scope := m.Find(client)
	if value >= wideDiffer || value == 0 {
		return -1, false, max(value-wideDiffer-1, geo.NoCell), scope
	}
	return int(value&memoRegion) - 1, value&wideForced != 0, geo.NoCell, scope
}
