package steer

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sort"
)

// version2 is the first byte of a plan as it is written now, and version3 of one with pins. Plans of version 1 are JSON
// and start with a brace.
const (
	version2 = 2
	version3 = 3
)

// PlanVersion is the newest version of a plan that this release reads. One that holds no pins is written as version 2.
const PlanVersion = version3

// A plan of version 2 is, after its version byte: spec version; regions; without, as indexes of regions; ramp, empty or a
// byte for each region; the names of all cells that have a row, in order, each as the length that it shares with the one
// before and the rest; all different lists of shares; services. A service is its name, waits and prices in milliseconds,
// its spread as the index of a list of shares, and its rows: the distance to the cell before and the index of the list.
// A list of shares is its length and, for each, the distance to the region before and the weight. Numbers are unsigned
// varints, texts are a length and bytes. Version 3 goes on with the pins: the number of rows that have some, and for each
// the indexes of its service and of the row, the number of pins, and for each the distance to the network before and the
// region.

// Encode writes the plan for the Raft log. Waits and prices are kept to the millisecond.
func Encode(p *Plan) ([]byte, error) {
	if err := p.valid(); err != nil {
		return nil, fmt.Errorf("encoding a plan: %w", err)
	}
	return encode(p)
}

func encode(p *Plan) ([]byte, error) {
	w := &writer{lists: map[string]int{}, cells: map[string]int{}}
	w.gather(p)
	pinned := p.pinned()
	if w.b = append(w.b, version2); pinned > 0 {
		w.b[0] = version3
	}
	w.number(p.SpecVersion)
	w.number(uint64(len(p.Regions)))
	for _, r := range p.Regions {
		w.text(r)
	}
	if err := w.without(p); err != nil {
		return nil, err
	}
	w.text(string(p.Ramp))
	w.names()
	w.number(uint64(len(w.order)))
	for _, l := range w.order {
		w.b = append(w.b, l...)
	}
	w.number(uint64(len(p.Services)))
	for i := range p.Services {
		w.service(&p.Services[i])
	}
	if pinned > 0 {
		w.pins(p, pinned)
	}
	if len(w.b) > MaxEncoded {
		return nil, fmt.Errorf("plan is %d bytes, over the limit of %d: steer fewer services or regions by one spec", len(w.b), MaxEncoded)
	}
	return w.b, nil
}

type writer struct {
	b      []byte
	lists  map[string]int // by what is written for them
	order  []string
	cells  map[string]int
	sorted []string
}

func (w *writer) number(v uint64) { w.b = binary.AppendUvarint(w.b, v) }

func (w *writer) text(s string) {
	w.number(uint64(len(s)))
	w.b = append(w.b, s...)
}

// gather numbers every list of shares in the order of its first use, and every cell in the order of names.
func (w *writer) gather(p *Plan) {
	for i := range p.Services {
		s := &p.Services[i]
		w.list(s.Spread)
		for k := range s.Rows {
			w.list(s.Rows[k].Shares)
			w.cells[s.Rows[k].Cell] = 0
		}
	}
	for name := range w.cells {
		w.sorted = append(w.sorted, name)
	}
	sort.Strings(w.sorted)
	for i, name := range w.sorted {
		w.cells[name] = i
	}
}

func (w *writer) list(shares []Share) int {
	key := string(appendShares(nil, shares))
	i, ok := w.lists[key]
	if !ok {
		i = len(w.order)
		w.lists[key] = i
		w.order = append(w.order, key)
	}
	return i
}

func appendShares(b []byte, shares []Share) []byte {
	b = binary.AppendUvarint(b, uint64(len(shares)))
	at := uint16(0)
	for _, s := range shares {
		b = binary.AppendUvarint(b, uint64(s.Region-at))
		b = binary.AppendUvarint(b, uint64(s.Weight))
		at = s.Region
	}
	return b
}

// pinned is how many rows have pins.
func (p *Plan) pinned() (n int) {
	for i := range p.Services {
		for k := range p.Services[i].Rows {
			if len(p.Services[i].Rows[k].Pins) > 0 {
				n++
			}
		}
	}
	return n
}

func (w *writer) pins(p *Plan, rows int) {
	w.number(uint64(rows))
	for i := range p.Services {
		for k := range p.Services[i].Rows {
			pins := p.Services[i].Rows[k].Pins
			if len(pins) == 0 {
				continue
			}
			w.number(uint64(i))
			w.number(uint64(k))
			w.number(uint64(len(pins)))
			at := uint64(0)
			for _, x := range pins {
				w.number(x.Network - at)
				w.number(uint64(x.Region))
				at = x.Network
			}
		}
	}
}

func (w *writer) without(p *Plan) error {
	w.number(uint64(len(p.Without)))
	for _, name := range p.Without {
		i := slices.Index(p.Regions, name)
		if i < 0 {
			return fmt.Errorf("encoding a plan: it does without region %q, which it does not know", name)
		}
		w.number(uint64(i))
	}
	return nil
}

func (w *writer) names() {
	w.number(uint64(len(w.sorted)))
	last := ""
	for _, name := range w.sorted {
		n := shared(last, name)
		w.number(uint64(n))
		w.text(name[n:])
		last = name
	}
}

// shared is how many bytes two names begin with alike.
func shared(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func (w *writer) service(s *Service) {
	w.text(s.Name)
	for r := range s.Wait {
		w.number(uint64(math.Round(s.Wait[r] * 1000)))
		w.number(uint64(math.Round(s.Price[r] * 1000)))
	}
	w.number(uint64(w.list(s.Spread)))
	w.number(uint64(len(s.Rows)))
	at := 0
	for i := range s.Rows {
		cell := w.cells[s.Rows[i].Cell]
		w.number(uint64(cell - at))
		w.number(uint64(w.list(s.Rows[i].Shares)))
		at = cell
	}
}

// rowBudget is what rows may take of a plan, in bytes; the rest is for services and regions.
const rowBudget = MaxEncoded * 3 / 4

// rowSize bounds what rows take when they are written.
type rowSize struct {
	bytes int
	lists map[string]bool
	cells map[string]bool
}

func newRowSize() *rowSize { return &rowSize{lists: map[string]bool{}, cells: map[string]bool{}} }

// add counts one more row and returns the sum.
func (z *rowSize) add(cell string, row *Row) int {
	z.bytes += 2 * 2 // distance and index, up to 2^14
	if len(row.Pins) > 0 {
		z.bytes += 8 + 10*len(row.Pins)
	}
	if key := string(appendShares(nil, row.Shares)); !z.lists[key] {
		z.lists[key] = true
		z.bytes += len(key)
	}
	if !z.cells[cell] {
		z.cells[cell] = true
		z.bytes += 2 + len(cell)
	}
	return z.bytes
}
