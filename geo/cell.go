package geo

import (
	"fmt"
	"math"
)

// The grid that steering groups clients by. A cell is about 220 km high, which is worth some 2 ms of round trip: far
// below the error of the prior. Its number depends on nothing but the coordinates, so two nodes with different
// databases mean the same cell by the same number.
const (
	cellDegrees = 2
	cellCols    = 360 / cellDegrees
	cellRows    = 180 / cellDegrees
	// NumCells bounds cell numbers: they are 0 to NumCells-1.
	NumCells = cellRows * cellCols
	// NoCell is the number of no cell: the place is unknown, or the address says nothing about a place.
	NoCell int32 = -1
)

// Cell is one square of the grid that some network of an Atlas lies in.
type Cell struct {
	// ID is the square's number, the same in every Atlas.
	ID int32
	// Name is the square's south-west corner, such as "n38w078", the same in every Atlas.
	Name string
	// Place is a place in the square that stands for all of it.
	Place Place
}

// CellOf is the number of the cell that a place lies in, or NoCell when its coordinates are not on the globe.
func CellOf(p Place) int32 {
	if !p.valid() {
		return NoCell
	}
	row := min(int32(math.Floor((p.Lat+90)/cellDegrees)), cellRows-1)
	col := int32(math.Floor((p.Lon+180)/cellDegrees)) % cellCols
	return row*cellCols + col
}

// CellName is the name of a cell, and "none" for a number that is no cell.
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

// CellNamed is the number of the cell with that name, or NoCell when there is none.
func CellNamed(name string) int32 {
	if len(name) != len("n38w078") {
		return NoCell
	}
	lat, ok := degrees(name[1:3], name[0], 'n', 's')
	lon, ok2 := degrees(name[4:7], name[3], 'e', 'w')
	if !ok || !ok2 {
		return NoCell
	}
	id := CellOf(Place{Lat: lat, Lon: lon})
	if CellName(id) != name {
		return NoCell // not the corner of a cell, or not written as one
	}
	return id
}

func degrees(digits string, sign, plus, minus byte) (float64, bool) {
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

// centre is the middle of a cell.
func centre(id int32) Place {
	return Place{
		Lat: float64(id/cellCols*cellDegrees-90) + cellDegrees/2.0,
		Lon: float64(id%cellCols*cellDegrees-180) + cellDegrees/2.0,
	}
}
