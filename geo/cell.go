package geo

import (
	"fmt"
	"math"
)

// The grid by which steering groups clients. A cell is about 220 km high, which is some 2 ms of round trip: far below
// the error of the prior. Its number depends only on the coordinates, so nodes with different databases use the same
// number for the same cell.
const (
	cellDegrees = 2
	cellCols    = 360 / cellDegrees
	cellRows    = 180 / cellDegrees
	// NumCells bounds cell numbers: they are 0 to NumCells-1.
	NumCells = cellRows * cellCols
	// NoCell is the number of no cell: the location is unknown, or the address has none.
	NoCell int32 = -1
)

// Cell is one square of the grid with at least one network of an Atlas.
type Cell struct {
	// ID is the square's number, the same in every Atlas.
	ID int32
	// Name is the square's south-west corner, such as "n38w078", the same in every Atlas.
	Name string
	// Location is a location in the square that represents all of it.
	Location Location
}

// CellAt returns the number of a location's cell, or NoCell when its coordinates are invalid.
func CellAt(p Location) int32 {
	if !p.isOnGlobe() {
		return NoCell
	}
	row := min(int32(math.Floor((p.Lat+90)/cellDegrees)), cellRows-1)
	col := int32(math.Floor((p.Lon+180)/cellDegrees)) % cellCols
	return row*cellCols + col
}

// CellName returns the name of a cell, and "none" for a number that is no cell.
func CellName(id int32) string {
	if id < 0 || id >= NumCells {
		return "none"
	}
	lat, lon := id/cellCols*cellDegrees-90, id%cellCols*cellDegrees-180
	ns, ew := 'n', 'e'
	if lat < 0 {
		ns, lat = 's', -lat
	}
	if lon < 0 {
		ew, lon = 'w', -lon
	}
	return fmt.Sprintf("%c%02d%c%03d", ns, lat, ew, lon)
}

// ParseCellName returns the number of the cell with that name, or NoCell when there is none.
func ParseCellName(name string) int32 {
	if len(name) != len("n38w078") {
		return NoCell
	}
	lat, ok := parseDegrees(name[1:3], name[0], 'n', 's')
	lon, ok2 := parseDegrees(name[4:7], name[3], 'e', 'w')
	if !ok || !ok2 {
		return NoCell
	}
	id := CellAt(Location{Lat: lat, Lon: lon})
	if CellName(id) != name {
		return NoCell // not the corner of a cell, or not in canonical form
	}
	return id
}

func parseDegrees(digits string, sign, plus, minus byte) (float64, bool) {
	var v float64
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, false
		}
		v = v*10 + float64(digits[i]-'0')
	}
	switch sign {
	case plus:
		return v, true
	case minus:
		return -v, true
	}
	return 0, false
}

// cellCentre returns the centre of a cell.
func cellCentre(id int32) Location {
	return Location{
		Lat: float64(id/cellCols*cellDegrees-90) + cellDegrees/2.0,
		Lon: float64(id%cellCols*cellDegrees-180) + cellDegrees/2.0,
	}
}
