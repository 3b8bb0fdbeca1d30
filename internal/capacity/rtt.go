package capacity

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/capacity/capacitypb"
)

// RTT is what gateways measured of the round trips between one cell's clients and this subtree's front doors. It adds
// up: several gateways' RTTs become the mean of their medians, weighted by their samples. In a merge of several regions
// it is the mean over them, which nobody steers by.
type RTT struct {
	Cell string
	// Samples is how much the measurement weighs: connections, old ones counted less.
	Samples int64
	// TotalMicros is the median round trip in microseconds times Samples.
	TotalMicros int64
	// AgeSec is how old the newest sample was when the statement was made, in seconds.
	AgeSec int64

	unknown string // see Summary
}

// cellRegion begins the cells that stand for another region's gateways instead of clients. No cell of clients is called
// so, and a release that does not know it passes over what it says.
const cellRegion = "region/"

// CellOfRegion is the Cell of an RTT to another region's gateways.
func CellOfRegion(region string) string { return cellRegion + region }

// Region is the other region that the RTT leads to; false for one to clients.
func (r *RTT) Region() (string, bool) { return strings.CutPrefix(r.Cell, cellRegion) }

// Micros is the median, or the mean of several gateways' medians, in microseconds; 0 when nothing was measured.
func (r *RTT) Micros() int64 {
	if r.Samples <= 0 {
		return 0
	}
	return r.TotalMicros / r.Samples
}

func compareRTT(a, b RTT) int { return strings.Compare(a.Cell, b.Cell) }

func mergeRTT(a, b RTT) RTT {
	return RTT{
		Cell: a.Cell, Samples: add(a.Samples, b.Samples), TotalMicros: add(a.TotalMicros, b.TotalMicros), AgeSec: min(a.AgeSec, b.AgeSec),
	}
}

// tidy brings amounts into range; it is false for an entry that cannot be mended.
func (r *RTT) tidy() bool {
	r.Samples, r.TotalMicros, r.AgeSec = clamp(r.Samples), clamp(r.TotalMicros), clamp(r.AgeSec)
	return checkName("", r.Cell, false) == nil
}

func checkRTTs(rs []RTT) error {
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

func diffRTTs(base, next []RTT) (changed []RTT, removed []string) {
	return diffByName(base, next, compareRTT, cellOf)
}

func (d *Delta) keptRTTs(held []RTT) []RTT { return keptByName(held, d.RemovedRTTs, cellOf) }

func cellOf(x *RTT) string { return x.Cell }

func (d *Delta) checkRTTs() error {
	if len(d.RemovedRTTs) > MaxRTTs || !slices.IsSortedFunc(d.RemovedRTTs, strings.Compare) {
		return errors.New("removed round trips are too many or not in order")
	}
	return checkRTTs(d.RTTs)
}

func rttsToPB(rs []RTT) []*capacitypb.RTT {
	out := make([]*capacitypb.RTT, len(rs))
	for i := range rs {
		r := &rs[i]
		out[i] = &capacitypb.RTT{Cell: r.Cell, Samples: uint64(r.Samples), TotalMicros: uint64(r.TotalMicros), AgeSec: uint64(r.AgeSec)}
		setUnknown(out[i], r.unknown)
	}
	return out
}

func rttsFromPB(ps []*capacitypb.RTT) []RTT {
	var out []RTT
	for _, p := range ps {
		out = append(out, RTT{
			Cell: p.Cell, Samples: amount(p.Samples), TotalMicros: amount(p.TotalMicros), AgeSec: amount(p.AgeSec), unknown: getUnknown(p),
		})
	}
	return out
}
