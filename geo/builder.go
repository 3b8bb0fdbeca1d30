package geo

import (
	"errors"
	"net/netip"
	"slices"
)

// maxNodes bounds a tree under construction at 256 MiB, several times what published databases need.
const maxNodes = 1 << 25

// builder gathers networks into an Atlas; what is added later covers what is there.
type builder struct {
	v4, v6  *trie
	records []record
	index   map[record]int32
}

// newBuilder starts with the record that every address has which nobody places.
func newBuilder() *builder {
	b := &builder{v4: newTrie(), v6: newTrie(), index: make(map[record]int32)}
	b.records = append(b.records, record{cell: NoCell, source: SourceNone})
	return b
}

func (b *builder) add(p netip.Prefix, at Place, source string) error {
	if !p.IsValid() {
		return errors.New("not a network")
	}
	cell := CellOf(at)
	if cell == NoCell {
		return errors.New("coordinates are not on the globe: latitude is -90 to 90, longitude -180 to 180 degrees")
	}
	return b.put(p, record{place: at, cell: cell, source: source})
}

// addFrom is add for one source.
func (b *builder) addFrom(source string) adder {
	return func(p netip.Prefix, at Place) error { return b.add(p, at, source) }
}

func (b *builder) addSpecial() error {
	for _, s := range specialRanges {
		if err := b.put(netip.MustParsePrefix(s), record{cell: NoCell, source: SourceSpecial}); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) put(p netip.Prefix, r record) error {
	i, known := b.index[r]
	if !known {
		if len(b.records) == maxRecords {
			return errors.New("too many different places: use a smaller database")
		}
		i = int32(len(b.records))
		b.records = append(b.records, r)
		b.index[r] = i
	}
	p = p.Masked()
	t := b.v6
	if p.Addr().Is4() {
		t = b.v4
	}
	if t.insert(p, i); len(t.nodes) > maxNodes {
		return errors.New("too many networks: use a smaller database")
	}
	return nil
}

func (b *builder) atlas() *Atlas {
	return &Atlas{v4: b.v4.compile(), v6: b.v6.compile(), records: b.records, spots: spotsOf(b.v4, b.v6, b.records), cells: cellsOf(b.records)}
}

// cellsOf lists the cells of the records. The place nearest to a cell's middle stands for it, named in preference to
// unnamed, so that the choice does not hang on the order of networks.
func cellsOf(records []record) []Cell {
	best := make(map[int32]Place)
	for _, r := range records {
		if r.cell == NoCell {
			continue
		}
		if have, ok := best[r.cell]; !ok || standsBetter(r.place, have, centre(r.cell)) {
			best[r.cell] = r.place
		}
	}
	cells := make([]Cell, 0, len(best))
	for id, p := range best {
		cells = append(cells, Cell{ID: id, Name: CellName(id), Place: p})
	}
	slices.SortFunc(cells, func(a, b Cell) int { return int(a.ID - b.ID) })
	return cells
}

func standsBetter(a, b, middle Place) bool {
	if (a.City != "") != (b.City != "") {
		return a.City != ""
	}
	da, db := DistanceKM(a, middle), DistanceKM(b, middle)
	if da != db {
		return da < db
	}
	return a.City < b.City
}
