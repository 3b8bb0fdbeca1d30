package main

import (
	"net/netip"
	"testing"

	"github.com/spillway-lb/spillway/geo"
)

// TestDatabaseAndTableAgree: every place is nearest to its land's region, by the estimate that answers are made with.
func TestDatabaseAndTableAgree(t *testing.T) {
	w, err := newWorld(t.TempDir(), 3000)
	if err != nil {
		t.Fatal(err)
	}
	atlas, err := geo.Open(geo.Config{Databases: []string{w.path}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range w.asked {
		if p%97 != 0 {
			continue
		}
		fix := atlas.Locate(netip.AddrFrom4([4]byte{byte(p >> 16), byte(p >> 8), byte(p), 1}))
		best, least := 0, 1e9
		for i, l := range lands {
			if d := geo.RTT(fix.Place, geo.Place{Lat: l.lat, Lon: l.lon}).Seconds(); d < least {
				best, least = i, d
			}
		}
		if fix.Source != geo.SourceDatabase || byte(best+1) != w.region[p] {
			t.Fatalf("%v: nearest is %d, the table says %d", fix, best+1, w.region[p])
		}
	}
	again, err := newWorld(t.TempDir(), 3000)
	if err != nil || string(again.region) != string(w.region) {
		t.Errorf("another run makes another world, %v", err)
	}
}
