package rtt

import (
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// maxPeers bounds the number of regions in a report.
const maxPeers = 256

// PeerTable holds the round-trip times to other regions' gateways, measured on connections to them. It is safe for
// concurrent use.
type PeerTable struct {
	mu      sync.Mutex
	regions map[string]*networkRTT
	cells   []peerCell // one per region, sorted
	// cachedReport is the report built at builtAt, valid until expiresAt; nil after a new measurement.
	cachedReport       []capacity.CellRTT
	builtAt, expiresAt time.Time
}

// peerCell is a region and its name in a summary.
type peerCell struct{ cell, region string }

// NewPeerTable returns an empty table.
func NewPeerTable() *PeerTable { return &PeerTable{regions: map[string]*networkRTT{}} }

// AddSample records one sample.
func (p *PeerTable) AddSample(region string, rtt time.Duration, now time.Time) {
	if region == "" || rtt <= 0 || rtt > geo.MaxRTT {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.regions[region]
	if n == nil {
		if len(p.regions) >= maxPeers {
			return
		}
		n = &networkRTT{sampledAt: now}
		p.regions[region] = n
		c := peerCell{capacity.RegionCell(region), region}
		at, _ := slices.BinarySearchFunc(p.cells, c, comparePeerCell)
		p.cells = slices.Insert(p.cells, at, c)
	}
	p.cachedReport = nil
	n.ring[n.samples%rttRingSize] = uint32(min(rtt.Microseconds(), math.MaxUint32))
	n.samples++
	n.weight = min(n.weightAt(now)+1, maxNetworkWeight)
	n.sampledAt = now
}

// SinceMeasured returns the time since a region was last measured; the maximum when it never was.
func (p *PeerTable) SinceMeasured(region string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.regions[region]; n != nil {
		return now.Sub(n.sampledAt)
	}
	return math.MaxInt64
}

// AppendReport adds the peers to a list of cells for a summary. Ages are rounded to the minute, because each
// change takes room in a summary. The slice is shared: do not modify it.
func (p *PeerTable) AppendReport(cells []capacity.CellRTT, now time.Time) []capacity.CellRTT {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.regions) == 0 {
		return cells
	}
	if p.cachedReport == nil || now.Before(p.builtAt) || !now.Before(p.expiresAt) {
		p.rebuildReport(now)
	}
	if len(cells) == 0 {
		return p.cachedReport
	}
	out := slices.Concat(cells, p.cachedReport)
	if byCell := func(a, b capacity.CellRTT) int { return strings.Compare(a.Cell, b.Cell) }; !slices.IsSortedFunc(out, byCell) {
		slices.SortFunc(out, byCell)
	}
	return out
}

// rebuildReport rebuilds the report and deletes regions whose last measurement is too old.
func (p *PeerTable) rebuildReport(now time.Time) {
	p.builtAt, p.expiresAt = now, now.Add(time.Minute)
	p.cachedReport = make([]capacity.CellRTT, 0, len(p.cells))
	p.cells = slices.DeleteFunc(p.cells, func(c peerCell) bool {
		n := p.regions[c.region]
		age := max(now.Sub(n.sampledAt), 0)
		if age > geo.DefaultMaxMeasurementAge {
			delete(p.regions, c.region)
			return true
		}
		age = age.Truncate(time.Minute)
		if next := n.sampledAt.Add(min(age+time.Minute, geo.DefaultMaxMeasurementAge+1)); next.Before(p.expiresAt) {
			p.expiresAt = next
		}
		weight := int64(math.Round(n.weightAt(n.sampledAt.Add(age))))
		p.cachedReport = append(p.cachedReport, capacity.CellRTT{Cell: c.cell, Samples: weight, TotalMicros: weight * int64(n.medianMicros()), AgeSec: int64(age / time.Second)})
		return false
	})
	p.cachedReport = slices.Clip(p.cachedReport)
}

func comparePeerCell(a, b peerCell) int { return strings.Compare(a.cell, b.cell) }
