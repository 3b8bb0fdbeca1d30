package global

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
)

// memo remembers what was picked for a service's cell, where every client of the cell is sent alike: steering then costs
// one load of memory. Views share it for as long as nothing changes that a pick depends on.
type memo struct {
	table    *steer.Table
	drained  steer.Set
	lost     []steer.Set
	services []atomic.Pointer[cellMemo]
	atlas    *geo.Atlas
	made     time.Time
	wide     []atomic.Pointer[geo.Map] // by service, see widen
}

// cellMemo holds one entry for each cell, and at the end for clients of none; 0 is not known yet.
type cellMemo [geo.NumCells + 1]atomic.Uint32

// Entries of a cellMemo: the region and one, or that clients differ.
const (
	memoForced = 1 << 30
	memoDiffer = 1 << 31
	memoRegion = 1<<16 - 1
)

// memoServices bounds the memory: 64 KiB for each service that is asked for. Those behind are picked for anew each time.
const memoServices = 256

// of returns m where it holds for the View, or a new one.
func (m *memo) of(v *View) *memo {
	if m != nil && m.table == v.table && m.atlas == v.atlas && m.drained == v.drained && slices.Equal(m.lost, v.lost) {
		return m
	}
	return &memo{
		table: v.table, drained: v.drained, lost: v.lost,
		services: make([]atomic.Pointer[cellMemo], min(len(v.lost), memoServices)),
		wide:     make([]atomic.Pointer[geo.Map], min(len(v.lost), maxWide)),
		made:     v.made, atlas: v.atlas,
	}
}

// entry is where the cell's pick is remembered; nil: nowhere.
func (m *memo) entry(service int, cell int32) *atomic.Uint32 {
	if m == nil || service >= len(m.services) {
		return nil
	}
	c := m.services[service].Load()
	if c == nil {
		c = new(cellMemo)
		if !m.services[service].CompareAndSwap(nil, c) {
			c = m.services[service].Load()
		}
	}
	if cell < 0 {
		cell = geo.NumCells
	}
	return &c[cell]
}

// note makes the entry of a pick.
func note(region int, split, forced bool) uint32 {
	switch {
	case split || region < 0:
		return memoDiffer
	case forced:
		return uint32(region+1) | memoForced
	}
	return uint32(region + 1)
}
