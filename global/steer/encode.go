package steer

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sort"
)

// planVersion2 is the first byte of a plan without pins, planVersion3 of one with pins. Plans of version 1 are JSON
// and start with a brace.
const (
	planVersion2 = 2
	planVersion3 = 3
)

// PlanVersion is the newest plan version that this release reads. A plan without pins is written as version 2.
const PlanVersion = planVersion3

// Format of version 2, after the version byte: spec version; regions; excluded regions, as region indexes; ramp,
// empty or a byte per region; the names of all cells with a row, in order, each as the length of the prefix shared
// with the previous name and the rest; all distinct lists of shares; services. A service is its name, waits and
// prices in milliseconds, its spread as the index of a list of shares, and its rows: the cell index as the difference
// to the previous one and the index of the list. A list of shares is its length and, for each share, the region index
// as the difference to the previous one and the weight. Numbers are unsigned varints, texts are a length and bytes.
// Version 3 appends the pins: the number of rows with pins, and for each the indexes of its service and row, the
// number of pins, and for each the network as the difference to the previous one and the region.

// EncodePlan encodes the plan for the Raft log. Waits and prices are rounded to the millisecond.
func EncodePlan(p *Plan) ([]byte, error) {
	if err := p.validatePlan(); err != nil {
		return nil, fmt.Errorf("encoding a plan: %w", err)
	}
	return encodeUnchecked(p)
}

func encodeUnchecked(p *Plan) ([]byte, error) {
	w := &planWriter{listIndexes: map[string]int{}, cellIndexes: map[string]int{}}
	w.collectListsAndCells(p)
	pinned := countPinnedRows(p)
	if w.buf = append(w.buf, planVersion2); pinned > 0 {
		w.buf[0] = planVersion3
	}
	w.writeNumber(p.SpecVersion)
	w.writeNumber(uint64(len(p.Regions)))
	for _, r := range p.Regions {
		w.writeText(r)
	}
	if err := w.writeWithout(p); err != nil {
		return nil, err
	}
	w.writeText(string(p.Ramp))
	w.writeCellNames()
	w.writeNumber(uint64(len(w.shareLists)))
	for _, l := range w.shareLists {
		w.buf = append(w.buf, l...)
	}
	w.writeNumber(uint64(len(p.Services)))
	for i := range p.Services {
		w.writeService(&p.Services[i])
	}
	if pinned > 0 {
		w.writePins(p, pinned)
	}
	if len(w.buf) > MaxEncodedBytes {
		return nil, fmt.Errorf("plan is %d bytes, over the limit of %d: steer fewer services or regions by one spec", len(w.buf), MaxEncodedBytes)
	}
	return w.buf, nil
}

type planWriter struct {
	buf         []byte
	listIndexes map[string]int // by their encoding
	shareLists  []string
	cellIndexes map[string]int
	cellNames   []string
}

func (w *planWriter) writeNumber(v uint64) { w.buf = binary.AppendUvarint(w.buf, v) }

func (w *planWriter) writeText(s string) {
	w.writeNumber(uint64(len(s)))
	w.buf = append(w.buf, s...)
}

// collectListsAndCells numbers the lists of shares in the order of first use, and the cells in the order of names.
func (w *planWriter) collectListsAndCells(p *Plan) {
	for i := range p.Services {
		s := &p.Services[i]
		w.listIndex(s.Spread)
		for k := range s.Rows {
			w.listIndex(s.Rows[k].Shares)
			w.cellIndexes[s.Rows[k].Cell] = 0
		}
	}
	for name := range w.cellIndexes {
		w.cellNames = append(w.cellNames, name)
	}
	sort.Strings(w.cellNames)
	for i, name := range w.cellNames {
		w.cellIndexes[name] = i
	}
}

func (w *planWriter) listIndex(shares []RegionShare) int {
	key := string(appendShares(nil, shares))
	i, ok := w.listIndexes[key]
	if !ok {
		i = len(w.shareLists)
		w.listIndexes[key] = i
		w.shareLists = append(w.shareLists, key)
	}
	return i
}

func appendShares(b []byte, shares []RegionShare) []byte {
	b = binary.AppendUvarint(b, uint64(len(shares)))
	at := uint16(0)
	for _, s := range shares {
		b = binary.AppendUvarint(b, uint64(s.Region-at))
		b = binary.AppendUvarint(b, uint64(s.Weight))
		at = s.Region
	}
	return b
}

// countPinnedRows is the number of rows with pins.
func countPinnedRows(p *Plan) (n int) {
	for i := range p.Services {
		for k := range p.Services[i].Rows {
			if len(p.Services[i].Rows[k].Pins) > 0 {
				n++
			}
		}
	}
	return n
}

func (w *planWriter) writePins(p *Plan, rows int) {
	w.writeNumber(uint64(rows))
	for i := range p.Services {
		for k := range p.Services[i].Rows {
			pins := p.Services[i].Rows[k].Pins
			if len(pins) == 0 {
				continue
			}
			w.writeNumber(uint64(i))
			w.writeNumber(uint64(k))
			w.writeNumber(uint64(len(pins)))
			at := uint64(0)
			for _, x := range pins {
				w.writeNumber(x.Network - at)
				w.writeNumber(uint64(x.Region))
				at = x.Network
			}
		}
	}
}

func (w *planWriter) writeWithout(p *Plan) error {
	w.writeNumber(uint64(len(p.Without)))
	for _, name := range p.Without {
		i := slices.Index(p.Regions, name)
		if i < 0 {
			return fmt.Errorf("encoding a plan: its excluded region %q is not one of its regions", name)
		}
		w.writeNumber(uint64(i))
	}
	return nil
}

func (w *planWriter) writeCellNames() {
	w.writeNumber(uint64(len(w.cellNames)))
	last := ""
	for _, name := range w.cellNames {
		n := commonPrefixLen(last, name)
		w.writeNumber(uint64(n))
		w.writeText(name[n:])
		last = name
	}
}

// commonPrefixLen is the length of the common prefix of two names.
func commonPrefixLen(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func (w *planWriter) writeService(s *ServicePlan) {
	w.writeText(s.Name)
	for r := range s.Wait {
		w.writeNumber(uint64(math.Round(s.Wait[r] * 1000)))
		w.writeNumber(uint64(math.Round(s.Price[r] * 1000)))
	}
	w.writeNumber(uint64(w.listIndex(s.Spread)))
	w.writeNumber(uint64(len(s.Rows)))
	at := 0
	for i := range s.Rows {
		cell := w.cellIndexes[s.Rows[i].Cell]
		w.writeNumber(uint64(cell - at))
		w.writeNumber(uint64(w.listIndex(s.Rows[i].Shares)))
		at = cell
	}
}
