package geo_test

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/spillway-lb/spillway/geo"
)

// Demo mode gives documentation networks a location; a cell is a square of the grid.
func ExampleAtlas_Locate() {
	atlas, err := geo.BuildAtlas(geo.Config{Demo: true}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	info := atlas.Locate(netip.MustParseAddr("198.51.100.10"))
	fmt.Println(info.Location.City, geo.CellName(geo.CellAt(info.Location)))
	// Output: Frankfurt n50e008
}

// Where no round trip was measured it is estimated from the distance.
func ExamplePriorRTT() {
	frankfurt := geo.Location{Country: "DE", Continent: "EU", Lat: 50.11, Lon: 8.68}
	ashburn := geo.Location{Country: "US", Continent: "NA", Lat: 39.04, Lon: -77.49}
	fmt.Printf("%.0f km, %v\n", geo.DistanceKM(frankfurt, ashburn), geo.PriorRTT(frankfurt, ashburn).Round(time.Millisecond))
	// Output:
	// 6549 km, 97ms
}
