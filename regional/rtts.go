package regional

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/capacity"
)

const (
	// maxNetworks bounds the table. When it is full, the network that weighs least makes room.
	maxNetworks = 4096
	// rttRing is how many samples a network's median is of: the newest.
	rttRing = 15
	// rttHalfLife is how long it takes a sample to count half.
	rttHalfLife = time.Hour
	// maxNetworkWeight bounds what one network counts in its cell, so that one office, or one client that answers late
	// on purpose, does not speak for all of its neighbours.
	maxNetworkWeight = 64
	// maxReported is how many cells are told upwards, those with the most samples.
	maxReported = 64
)

// rtts are the round trips of clients' networks, /24 of IPv4 and /48 of IPv6. It has one writer.
type rtts struct {
	keep     time.Duration // how long a network is remembered after its newest sample
	networks map[netip.Prefix]*networkRTT
}

// networkRTT is what is known of one network.
type networkRTT struct {
	cell   int32 // where the client of the newest sample is
	ring   [rttRing]uint32
	taken  int     // samples ever; the newest is at (taken-1) % rttRing
	weight float64 // samples, old ones counted less, as of at
	at     time.Time
}

func newRTTs(keep time.Duration) *rtts {
	return &rtts{keep: keep, networks: map[netip.Prefix]*networkRTT{}}
}

// networkOf is the network that a client stands for, by its IPv4 address or its IPv6 site.
func networkOf(client netip.Addr) netip.Prefix {
	bits := 48
	if client = client.Unmap().WithZone(""); client.Is4() {
		bits = 24
	}
	p, _ := client.Prefix(bits) // never longer than its address
	return p
}

// add takes one sample.
func (t *rtts) add(client netip.Addr, cell int32, rtt time.Duration, now time.Time) {
	key := networkOf(client)
	n := t.networks[key]
	if n == nil {
		if len(t.networks) >= maxNetworks {
			t.drop(now)
		}
		n = &networkRTT{at: now}
		t.networks[key] = n
	}
	n.cell = cell
	n.ring[n.taken%rttRing] = uint32(min(rtt.Microseconds(), math.MaxUint32))
	n.taken++
	n.weight = min(n.weightAt(now)+1, maxNetworkWeight)
	n.at = now
}

// drop makes room by forgetting the network that weighs least.
func (t *rtts) drop(now time.Time) {
	var which netip.Prefix
	least := math.Inf(1)
	for p, n := range t.networks {
		if w := n.weightAt(now); w < least {
			least, which = w, p
		}
	}
	delete(t.networks, which)
}

func (n *networkRTT) weightAt(now time.Time) float64 {
	if !now.After(n.at) {
		return n.weight
	}
	return n.weight * math.Exp2(-max(now.Sub(n.at), 0).Hours()/rttHalfLife.Hours())
}

// median of the newest samples, in microseconds.
func (n *networkRTT) median() uint32 {
	sorted := n.ring
	s := sorted[:min(n.taken, rttRing)]
	if len(s) == 1 {
		return s[0]
	}
	slices.Sort(s)
	return s[(len(s)-1)/2]
}

// part is one network's say in its cell.
type part struct {
	micros uint32
	weight float64
	age    time.Duration
}

// report rolls networks up into cells, as a summary carries them, and forgets what is too old.
func (t *rtts) report(now time.Time) []capacity.RTT {
	cells := map[int32][]part{}
	for p, n := range t.networks {
		age := max(now.Sub(n.at), 0)
		if age > t.keep {
			delete(t.networks, p)
			continue
		}
		cells[n.cell] = append(cells[n.cell], part{n.median(), n.weightAt(now), age})
	}
	out := make([]capacity.RTT, 0, len(cells))
	for cell, parts := range cells {
		if r := rollUp(parts); r.Samples > 0 {
			r.Cell = geo.CellName(cell)
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b capacity.RTT) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), strings.Compare(a.Cell, b.Cell))
	})
	out = slices.Clip(out[:min(len(out), maxReported)])
	slices.SortFunc(out, func(a, b capacity.RTT) int { return strings.Compare(a.Cell, b.Cell) })
	return out
}

// rollUp is a cell's round trip: the median of its networks' medians by weight. Less than half a sample is none.
func rollUp(parts []part) capacity.RTT {
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.micros, b.micros) })
	var sum float64
	age := parts[0].age
	for _, p := range parts {
		sum += p.weight
		age = min(age, p.age)
	}
	median, seen := parts[len(parts)-1].micros, 0.0
	for _, p := range parts {
		if seen += p.weight; seen >= sum/2 {
			median = p.micros
			break
		}
	}
	n := int64(math.Round(sum))
	return capacity.RTT{Samples: n, TotalMicros: n * int64(median), AgeSec: int64(age / time.Second)}
}
