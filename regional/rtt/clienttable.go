// Package rtt aggregates measured round-trip times for a gateway's summaries: those to client networks, by the cell of
// their location, and those to other regions' gateways.
//
// A report contains medians, so that single slow connections and clients that delay acknowledgements on purpose hardly
// change it. Memory is bounded and old samples lose weight.
package rtt

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
	// maxNetworks bounds the table. When it is full, the network with the least weight is evicted.
	maxNetworks = 4096
	// rttRingSize is the number of newest samples from which a network's median is computed.
	rttRingSize = 15
	// rttHalfLife is the age at which a sample counts half.
	rttHalfLife = time.Hour
	// maxNetworkWeight bounds the weight of one network in its cell, so that one office, or one client that delays
	// its acknowledgements on purpose, does not determine the value for its neighbours.
	maxNetworkWeight = 64
	// maxReportedCells is the number of cells in a report, those with the most samples.
	maxReportedCells = 64
)

// ClientTable holds the round-trip times of client networks, /24 of IPv4 and /48 of IPv6. It has one writer.
type ClientTable struct {
	retention time.Duration // how long a network is kept after its newest sample
	networks  map[netip.Prefix]*networkRTT
}

// networkRTT is the state of one network.
type networkRTT struct {
	cell      int32 // cell of the newest sample's client
	ring      [rttRingSize]uint32
	samples   int     // total samples; the newest is at (samples-1) % rttRingSize
	weight    float64 // decayed number of samples, as of sampledAt
	sampledAt time.Time
}

// NewClientTable returns an empty table. keep is how long a network is kept after its newest sample.
func NewClientTable(keep time.Duration) *ClientTable {
	return &ClientTable{retention: keep, networks: map[netip.Prefix]*networkRTT{}}
}

// networkOf returns a client's network: the /24 of an IPv4 address, the /48 of an IPv6 address.
func networkOf(client netip.Addr) netip.Prefix {
	bits := 48
	if client = client.Unmap().WithZone(""); client.Is4() {
		bits = 24
	}
	p, _ := client.Prefix(bits) // the prefix is never longer than the address
	return p
}

// AddSample records one sample.
func (t *ClientTable) AddSample(client netip.Addr, cell int32, rtt time.Duration, now time.Time) {
	key := networkOf(client)
	n := t.networks[key]
	if n == nil {
		if len(t.networks) >= maxNetworks {
			t.evictLightest(now)
		}
		n = &networkRTT{sampledAt: now}
		t.networks[key] = n
	}
	n.cell = cell
	n.ring[n.samples%rttRingSize] = uint32(min(rtt.Microseconds(), math.MaxUint32))
	n.samples++
	n.weight = min(n.weightAt(now)+1, maxNetworkWeight)
	n.sampledAt = now
}

// Len returns the number of networks.
func (t *ClientTable) Len() int { return len(t.networks) }

// evictLightest evicts the network with the least weight.
func (t *ClientTable) evictLightest(now time.Time) {
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
	if !now.After(n.sampledAt) {
		return n.weight
	}
	return n.weight * math.Exp2(-max(now.Sub(n.sampledAt), 0).Hours()/rttHalfLife.Hours())
}

// medianMicros returns the median of the newest samples, in microseconds.
func (n *networkRTT) medianMicros() uint32 {
	sorted := n.ring
	s := sorted[:min(n.samples, rttRingSize)]
	if len(s) == 1 {
		return s[0]
	}
	slices.Sort(s)
	return s[(len(s)-1)/2]
}

// networkMedian is the median and weight of one network in its cell.
type networkMedian struct {
	micros uint32
	weight float64
	age    time.Duration
}

// ReportCells aggregates networks into cells for a summary, and deletes networks that are too old.
func (t *ClientTable) ReportCells(now time.Time) []capacity.CellRTT {
	cells := map[int32][]networkMedian{}
	for p, n := range t.networks {
		age := max(now.Sub(n.sampledAt), 0)
		if age > t.retention {
			delete(t.networks, p)
			continue
		}
		cells[n.cell] = append(cells[n.cell], networkMedian{n.medianMicros(), n.weightAt(now), age})
	}
	out := make([]capacity.CellRTT, 0, len(cells))
	for cell, parts := range cells {
		if r := rollUp(parts); r.Samples > 0 {
			r.Cell = geo.CellName(cell)
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b capacity.CellRTT) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), strings.Compare(a.Cell, b.Cell))
	})
	out = slices.Clip(out[:min(len(out), maxReportedCells)])
	slices.SortFunc(out, func(a, b capacity.CellRTT) int { return strings.Compare(a.Cell, b.Cell) })
	return out
}

// rollUp returns a cell's round-trip time: the weighted median of its networks' medians. A total weight under half
// a sample yields none.
func rollUp(parts []networkMedian) capacity.CellRTT {
	slices.SortFunc(parts, func(a, b networkMedian) int { return cmp.Compare(a.micros, b.micros) })
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
	return capacity.CellRTT{Samples: n, TotalMicros: n * int64(median), AgeSec: int64(age / time.Second)}
}
