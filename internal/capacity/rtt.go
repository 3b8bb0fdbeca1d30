package capacity

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/capacity/capacitypb"
)

// CellRTT is the round-trip time measured by gateways between the clients of one cell and the gateways of this subtree.
// It is mergeable: the RTTs of several gateways become the mean of their medians, weighted by samples. Merged over
// several regions it is the mean over those, which steering does not use.
type CellRTT struct {
	Cell string
	// Samples is the weight of the measurement: the number of connections, old ones discounted.
	Samples int64
	// TotalMicros is the median round trip in microseconds, times Samples.
	TotalMicros int64
	// AgeSec is the age of the newest sample when the summary was made, in seconds.
	AgeSec int64

	unknown string // see Summary
}

// regionCellPrefix begins the names of cells that are another region's gateways and not clients. No cell of clients has
// such a name, and releases that do not know it ignore these entries.
const regionCellPrefix = "region/"

// RegionCell returns the cell of an RTT to another region's gateways.
func RegionCell(region string) string { return regionCellPrefix + region }

// PeerRegion returns the other region of an RTT between regions; false for an RTT to clients.
func (r *CellRTT) PeerRegion() (string, bool) { return strings.CutPrefix(r.Cell, regionCellPrefix) }

// MedianMicros returns the median, or the mean of several gateways' medians, in microseconds; 0 if nothing was
// measured.
func (r *CellRTT) MedianMicros() int64 {
	if r.Samples <= 0 {
		return 0
	}
	return r.TotalMicros / r.Samples
}

func compareRTT(a, b CellRTT) int { return strings.Compare(a.Cell, b.Cell) }

func mergeRTT(a, b CellRTT) CellRTT {
	return CellRTT{
		Cell: a.Cell, Samples: addAmounts(a.Samples, b.Samples), TotalMicros: addAmounts(a.TotalMicros, b.TotalMicros), AgeSec: min(a.AgeSec, b.AgeSec),
	}
}

// normalizeFields limits amounts to their range. It returns false for an entry that cannot be corrected.
func (r *CellRTT) normalizeFields() bool {
	r.Samples, r.TotalMicros, r.AgeSec = clampToRange(r.Samples), clampToRange(r.TotalMicros), clampToRange(r.AgeSec)
	return checkName("", r.Cell, false) == nil
}

func checkRTTs(rs []CellRTT) error {
	if len(rs) > MaxRTTs {
		return fmt.Errorf("%d round trips: over the limit of %d", len(rs), MaxRTTs)
	}
	for i := range rs {
		r := &rs[i]
		if i > 0 && compareRTT(rs[i-1], *r) >= 0 {
			return errors.New("round trips are not in ascending order of cell")
		}
		if err := cmp.Or(checkName("cell", r.Cell, false), checkAmount(r.Samples), checkAmount(r.TotalMicros), checkAmount(r.AgeSec)); err != nil {
			return err
		}
	}
	return nil
}

func diffRTTs(base, next []CellRTT) (changed []CellRTT, removed []string) {
	return diffByName(base, next, compareRTT, cellOf)
}

func (d *SummaryDelta) remainingRTTs(held []CellRTT) []CellRTT {
	return withoutNames(held, d.RemovedRTTs, cellOf)
}

func cellOf(x *CellRTT) string { return x.Cell }

func (d *SummaryDelta) checkRTTs() error {
	if len(d.RemovedRTTs) > MaxRTTs || !slices.IsSortedFunc(d.RemovedRTTs, strings.Compare) {
		return errors.New("removed round trips are too many or not in order")
	}
	return checkRTTs(d.RTTs)
}

func rttsToPB(rs []CellRTT) []*capacitypb.RTT {
	out := make([]*capacitypb.RTT, len(rs))
	for i := range rs {
		r := &rs[i]
		out[i] = &capacitypb.RTT{Cell: r.Cell, Samples: uint64(r.Samples), TotalMicros: uint64(r.TotalMicros), AgeSec: uint64(r.AgeSec)}
		setUnknown(out[i], r.unknown)
	}
	return out
}

func rttsFromPB(ps []*capacitypb.RTT) []CellRTT {
	var out []CellRTT
	for _, p := range ps {
		out = append(out, CellRTT{
			Cell: p.Cell, Samples: toAmount(p.Samples), TotalMicros: toAmount(p.TotalMicros), AgeSec: toAmount(p.AgeSec), unknown: getUnknown(p),
		})
	}
	return out
}
