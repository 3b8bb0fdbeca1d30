package regional

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
)

const (
	// maxHeavy is how many networks are counted at one time. Whoever asks for more than a part in so many of all that
	// is asked for here is among them (Metwally, Agrawal and El Abbadi 2005, "space saving").
	maxHeavy = 512
	// heavyWindow is the time constant of their decay: longer than that of demand, so that a burst is not a heavy network.
	heavyWindow = 30 * time.Second
	// maxHeavyTold is how many are told upwards, those that ask for most.
	maxHeavyTold = 64
	// heavyShare is the part of its cell's demand from which on a network is heavy, and heavyLeast the part of all.
	heavyShare, heavyLeast = 0.01, 0.0005
	// heavyEvery is the time between two reports: plans follow what lasts, and what has changed takes room in statements.
	heavyEvery = 2 * time.Second
)

// heavies counts what client networks ask for, the heaviest only and in bounded memory. When a network comes that there is
// no room for, it takes the place of the lightest and its count, which is then the most that it can have asked for
// before; reports leave that out, so a network is never made heavier than it is. Counts decay. It has one writer at a time.
type heavies struct {
	index  map[heavyKey]int32
	slots  []heavySlot
	heap   []int32 // slots by count, the least first
	zero   time.Time
	told   []capacity.Network
	toldAt time.Time
}

type heavyKey struct {
	service, cell string
	network       uint64
}

// heavySlot counts one network. Amounts are in tokens as of zero: one that comes later weighs more, instead of all others
// less.
type heavySlot struct {
	key        heavyKey
	count, err float64
	at         int32 // in the heap
}

func newHeavies() *heavies { return &heavies{index: make(map[heavyKey]int32, maxHeavy)} }

// offer counts one request. Clients of no known place are left out: there is no row of a plan for them.
func (h *heavies) offer(service, cell string, client netip.Addr, tokens float64, now time.Time) {
	if service == "" || cell == "" || !client.IsValid() || !(tokens > 0) {
		return
	}
	weight := tokens * math.Exp(h.since(now))
	key := heavyKey{service, cell, capacity.NetworkNumber(client)}
	i, known := h.index[key]
	switch {
	case known:
	case len(h.slots) < maxHeavy:
		i = int32(len(h.slots))
		h.slots = append(h.slots, heavySlot{key: key, at: i})
		h.heap = append(h.heap, i)
		h.index[key] = i
		for h.slots[i].at > 0 && h.less(h.slots[i].at, (h.slots[i].at-1)/2) {
			h.swap(h.slots[i].at, (h.slots[i].at-1)/2)
		}
	default:
		i = h.heap[0]
		s := &h.slots[i]
		delete(h.index, s.key)
		s.key, s.err = key, s.count
		h.index[key] = i
	}
	h.slots[i].count += weight
	h.sink(h.slots[i].at)
}

// since is the exponent of now's weight. Before it gets too large for the amounts, all are stated anew as of now.
func (h *heavies) since(now time.Time) float64 {
	if h.zero.IsZero() {
		h.zero = now
	}
	e := now.Sub(h.zero).Seconds() / heavyWindow.Seconds()
	if e < 50 {
		return max(e, 0)
	}
	scale := math.Exp(-e)
	for i := range h.slots {
		h.slots[i].count *= scale
		h.slots[i].err *= scale
	}
	h.zero = now
	return 0
}

func (h *heavies) less(a, b int32) bool { return h.slots[h.heap[a]].count < h.slots[h.heap[b]].count }

func (h *heavies) swap(a, b int32) {
	h.heap[a], h.heap[b] = h.heap[b], h.heap[a]
	h.slots[h.heap[a]].at, h.slots[h.heap[b]].at = a, b
}

// sink restores the heap after the count at a place of it has grown.
func (h *heavies) sink(at int32) {
	for {
		least := at
		for child := 2*at + 1; child <= 2*at+2 && int(child) < len(h.heap); child++ {
			if h.less(child, least) {
				least = child
			}
		}
		if least == at {
			return
		}
		h.swap(at, least)
		at = least
	}
}

// report lists the networks that are heavy in their cell, given what is demanded, in the order of a summary. The slice is
// shared: do not modify it.
func (h *heavies) report(demand []capacity.Demand, now time.Time) []capacity.Network {
	if now.Sub(h.toldAt) < heavyEvery && !h.toldAt.IsZero() {
		return h.told
	}
	h.toldAt = now
	type place struct{ service, cell string }
	cells, all := map[place]float64{}, 0.0
	for i := range demand {
		cells[place{demand[i].Service, demand[i].Cell}] += float64(demand[i].TokensPerSec)
		all += float64(demand[i].TokensPerSec)
	}
	scale := math.Exp(-h.since(now)) / heavyWindow.Seconds()
	var out []capacity.Network
	for i := range h.slots {
		s := &h.slots[i]
		rate := (s.count - s.err) * scale
		if rate >= 1 && rate >= heavyLeast*all && rate >= heavyShare*cells[place{s.key.service, s.key.cell}] {
			out = append(out, capacity.Network{Service: s.key.service, Cell: s.key.cell, Number: s.key.network, TokensPerSec: int64(rate)})
		}
	}
	slices.SortFunc(out, func(a, b capacity.Network) int {
		return cmp.Or(cmp.Compare(b.TokensPerSec, a.TokensPerSec), a.Compare(b))
	})
	out = slices.Clip(out[:min(len(out), maxHeavyTold)])
	slices.SortFunc(out, capacity.Network.Compare)
	h.told = out
	return out
}
