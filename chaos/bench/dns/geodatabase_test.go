package main

import (
	"net/netip"
	"testing"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/geo/geofiles"
)

// TestDatabaseAndTableAgree: every location is nearest to its country's region, by the estimate that answers use.
func TestDatabaseAndTableAgree(t *testing.T) {
	w, err := newGeoDatabase(t.TempDir(), 3000)
	if err != nil {
		t.Fatal(err)
	}
	atlas, err := geofiles.OpenAtlas(geo.Config{Databases: []string{w.path}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range w.askedNetworks {
		if p%97 != 0 {
			continue
		}
		fix := atlas.Locate(netip.AddrFrom4([4]byte{byte(p >> 16), byte(p >> 8), byte(p), 1}))
		best, least := 0, 1e9
		for i, l := range testRegions {
			if d := geo.PriorRTT(fix.Location, geo.Location{Lat: l.lat, Lon: l.lon}).Seconds(); d < least {
				best, least = i, d
			}
		}
		if fix.Source != geo.SourceDatabase || byte(best+1) != w.answerByNetwork[p] {
			t.Fatalf("%v: nearest is %d, the table says %d", fix, best+1, w.answerByNetwork[p])
		}
	}
	again, err := newGeoDatabase(t.TempDir(), 3000)
	if err != nil || string(again.answerByNetwork) != string(w.answerByNetwork) {
		t.Errorf("another run makes another world, %v", err)
	}
}
