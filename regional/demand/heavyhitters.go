package demand

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
)

const (
	// maxHeavyHitters is the number of networks counted at a time. Any network with more than 1/maxHeavyHitters of
	// the total demand here is among them (Metwally, Agrawal and El Abbadi 2005, "space saving").
	maxHeavyHitters = 512
	// heavyHitterWindow is the time constant of their decay. It is longer than that of demand, so that a burst
	// does not make a network heavy.
	heavyHitterWindow = 30 * time.Second
	// maxReportedHeavyHitters is the number of networks reported to the global tier, those with the most demand.
	maxReportedHeavyHitters = 64
	// A network is a heavy hitter from heavyHitterCellShare of its cell's demand, or heavyHitterTotalShare of the
	// total.
	heavyHitterCellShare, heavyHitterTotalShare = 0.01, 0.0005
	// heavyHitterReportInterval is the time between two reports. Plans follow lasting demand, and each change
	// takes room in summaries.
	heavyHitterReportInterval = 2 * time.Second
)

// heavyHitterTable counts the demand of the heaviest client networks in bounded memory. When the table is full, a
// new network replaces the lightest and inherits its count, which is the most that the new network can have
// demanded before. Reports subtract that part, so a network is never overestimated. Counts decay. The table has
// one writer at a time.
type heavyHitterTable struct {
	index        map[heavyHitterKey]int32
	slots        []heavyHitterSlot
	heap         []int32 // indexes of slots, a min-heap by count
	epoch        time.Time
	lastReport   []capacity.ClientNetwork
	lastReportAt time.Time
}

type heavyHitterKey struct {
	service, cell string
	network       uint64
}

// heavyHitterSlot counts one network. Amounts are in tokens as of the table's epoch: later ones get a higher
// weight, instead of decaying all others.
type heavyHitterSlot struct {
	key              heavyHitterKey
	count, overcount float64
	heapIndex        int32 // in the heap
}

func newHeavyHitterTable() *heavyHitterTable {
	return &heavyHitterTable{index: make(map[heavyHitterKey]int32, maxHeavyHitters)}
}

// addRequest counts one request. Clients of unknown location are left out: a plan has no row for them.
func (h *heavyHitterTable) addRequest(service, cell string, client netip.Addr, tokens float64, now time.Time) {
	if service == "" || cell == "" || !client.IsValid() || !(tokens > 0) {
		return
	}
	weight := tokens * math.Exp(h.decayExponent(now))
	key := heavyHitterKey{service, cell, capacity.NetworkNumber(client)}
	i, known := h.index[key]
	switch {
	case known:
	case len(h.slots) < maxHeavyHitters:
		i = int32(len(h.slots))
		h.slots = append(h.slots, heavyHitterSlot{key: key, heapIndex: i})
		h.heap = append(h.heap, i)
		h.index[key] = i
		for h.slots[i].heapIndex > 0 && h.isLighter(h.slots[i].heapIndex, (h.slots[i].heapIndex-1)/2) {
			h.swapSlots(h.slots[i].heapIndex, (h.slots[i].heapIndex-1)/2)
		}
	default:
		i = h.heap[0]
		s := &h.slots[i]
		delete(h.index, s.key)
		s.key, s.overcount = key, s.count
		h.index[key] = i
	}
	h.slots[i].count += weight
	h.siftDown(h.slots[i].heapIndex)
}

// decayExponent returns the exponent of the weight at now. Before it becomes too large for the amounts, all
// amounts are rescaled to now.
func (h *heavyHitterTable) decayExponent(now time.Time) float64 {
	if h.epoch.IsZero() {
		h.epoch = now
	}
	e := now.Sub(h.epoch).Seconds() / heavyHitterWindow.Seconds()
	if e < 50 {
		return max(e, 0)
	}
	scale := math.Exp(-e)
	for i := range h.slots {
		h.slots[i].count *= scale
		h.slots[i].overcount *= scale
	}
	h.epoch = now
	return 0
}

func (h *heavyHitterTable) isLighter(a, b int32) bool {
	return h.slots[h.heap[a]].count < h.slots[h.heap[b]].count
}

func (h *heavyHitterTable) swapSlots(a, b int32) {
	h.heap[a], h.heap[b] = h.heap[b], h.heap[a]
	h.slots[h.heap[a]].heapIndex, h.slots[h.heap[b]].heapIndex = a, b
}

// siftDown restores the heap after the count at index at has grown.
func (h *heavyHitterTable) siftDown(at int32) {
	for {
		least := at
		for child := 2*at + 1; child <= 2*at+2 && int(child) < len(h.heap); child++ {
			if h.isLighter(child, least) {
				least = child
			}
		}
		if least == at {
			return
		}
		h.swapSlots(at, least)
		at = least
	}
}

// reportHeavyHitters lists the networks that are heavy in their cell, in the order of a summary, given the demand
// by cell. The slice is shared: do not modify it.
func (h *heavyHitterTable) reportHeavyHitters(demand []capacity.CellDemand, now time.Time) []capacity.ClientNetwork {
	if now.Sub(h.lastReportAt) < heavyHitterReportInterval && !h.lastReportAt.IsZero() {
		return h.lastReport
	}
	h.lastReportAt = now
	type place struct{ service, cell string }
	cells, all := map[place]float64{}, 0.0
	for i := range demand {
		cells[place{demand[i].Service, demand[i].Cell}] += float64(demand[i].TokensPerSec)
		all += float64(demand[i].TokensPerSec)
	}
	scale := math.Exp(-h.decayExponent(now)) / heavyHitterWindow.Seconds()
	var out []capacity.ClientNetwork
	for i := range h.slots {
		s := &h.slots[i]
		rate := (s.count - s.overcount) * scale
		if rate >= 1 && rate >= heavyHitterTotalShare*all && rate >= heavyHitterCellShare*cells[place{s.key.service, s.key.cell}] {
			out = append(out, capacity.ClientNetwork{Service: s.key.service, Cell: s.key.cell, Number: s.key.network, TokensPerSec: int64(rate)})
		}
	}
	slices.SortFunc(out, func(a, b capacity.ClientNetwork) int {
		return cmp.Or(cmp.Compare(b.TokensPerSec, a.TokensPerSec), a.Compare(b))
	})
	out = slices.Clip(out[:min(len(out), maxReportedHeavyHitters)])
	slices.SortFunc(out, capacity.ClientNetwork.Compare)
	h.lastReport = out
	return out
}
