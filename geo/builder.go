package geo

import (
	"errors"
	"net/netip"
	"slices"
)

// maxNodes bounds a tree under construction at 256 MiB, several times what published databases need.
const maxNodes = 1 << 25

// atlasBuilder collects networks for an Atlas; later ones overwrite earlier ones.
type atlasBuilder struct {
	v4, v6      *trie
	records     []locationRecord
	recordIndex map[locationRecord]int32
}

// newAtlasBuilder starts with the record of addresses without a location.
func newAtlasBuilder() *atlasBuilder {
	b := &atlasBuilder{v4: newTrie(), v6: newTrie(), recordIndex: make(map[locationRecord]int32)}
	b.records = append(b.records, locationRecord{cell: NoCell, source: SourceNone})
	return b
}

func (b *atlasBuilder) addNetwork(p netip.Prefix, at Location, source string) error {
	if !p.IsValid() {
		return errors.New("not a network")
	}
	cell := CellAt(at)
	if cell == NoCell {
		return errors.New("coordinates are not on the globe: latitude is -90 to 90, longitude -180 to 180 degrees")
	}
	return b.insertRecord(p, locationRecord{location: at, cell: cell, source: source})
}

// addFuncFor returns the addFunc of one source.
func (b *atlasBuilder) addFuncFor(source string) addFunc {
	return func(p netip.Prefix, at Location) error { return b.addNetwork(p, at, source) }
}

func (b *atlasBuilder) addSpecialRanges() error {
	for _, s := range specialRanges {
		if err := b.insertRecord(netip.MustParsePrefix(s), locationRecord{cell: NoCell, source: SourceSpecial}); err != nil {
			return err
		}
	}
	return nil
}

func (b *atlasBuilder) insertRecord(p netip.Prefix, r locationRecord) error {
	i, known := b.recordIndex[r]
	if !known {
		if len(b.records) == barrierRecord {
			return errors.New("too many different places: use a smaller database")
		}
		i = int32(len(b.records))
		b.records = append(b.records, r)
		b.recordIndex[r] = i
	}
	p = p.Masked()
	t := b.v6
	if p.Addr().Is4() {
		t = b.v4
	}
	if t.insertPrefix(p, i); len(t.nodes) > maxNodes {
		return errors.New("too many networks: use a smaller database")
	}
	return nil
}

// buildAtlas ends the collection. It first separates the networks of IPv6 that contain IPv4 addresses: their addresses are
// looked up as IPv4, so the scope of another IPv6 address must not cover them.
func (b *atlasBuilder) buildAtlas() *Atlas {
	for _, p := range embeddedRanges() {
		b.v6.insertPrefix(p, barrierRecord)
	}
	a := &Atlas{v4: b.v4.compileTable(firstBitsIPv4), v6: b.v6.compileTable(firstBitsIPv6), records: slices.Clip(b.records), cells: listCells(b.records)}
	numbers := numberCells(a.records)
	a.cells4, a.cells6 = newCellTable(a.v4, numbers), newCellTable(a.v6, numbers)
	return a
}

// listCells lists the cells of the records. The location nearest to a cell's centre represents it, with preference
// for named ones, so that the choice does not depend on the order of networks.
func listCells(records []locationRecord) []Cell {
	best := make(map[int32]Location)
	for _, r := range records {
		if r.cell == NoCell {
			continue
		}
		if have, ok := best[r.cell]; !ok || isBetterRepresentative(r.location, have, cellCentre(r.cell)) {
			best[r.cell] = r.location
		}
	}
	cells := make([]Cell, 0, len(best))
	for id, p := range best {
		cells = append(cells, Cell{ID: id, Name: CellName(id), Location: p})
	}
	slices.SortFunc(cells, func(a, b Cell) int { return int(a.ID - b.ID) })
	return cells
}

func isBetterRepresentative(a, b, middle Location) bool {
	if (a.City != "") != (b.City != "") {
		return a.City != ""
	}
	da, db := DistanceKM(a, middle), DistanceKM(b, middle)
	if da != db {
		return da < db
	}
	return a.City < b.City
}
