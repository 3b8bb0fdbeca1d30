package fleet

import (
	"testing"

	"pgregory.net/rapid"
)

// TestLayoutAddressesAndNamesAreUnique: no two nodes share an address for any purpose, or a name.
func TestLayoutAddressesAndNamesAreUnique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Layout{
			Globals: rapid.IntRange(1, 9).Draw(t, "globals"), Regions: rapid.IntRange(1, len(AllSites())).Draw(t, "regions"),
			Gateways: rapid.IntRange(1, 3).Draw(t, "gateways"), Zones: rapid.IntRange(1, 5).Draw(t, "zones"),
			Locals: rapid.IntRange(0, 3).Draw(t, "locals"), Workers: rapid.IntRange(1, 40).Draw(t, "workers"), OneAddress: rapid.Bool().Draw(t, "one"), BasePort: 20000,
			Net: rapid.IntRange(0, 89).Draw(t, "net"),
		}
		if err := l.checkLayout(); err != nil {
			t.Fatal(err)
		}
		ids, addrs := map[string]bool{}, map[string]string{}
		for _, n := range l.BuildNodes() {
			if ids[n.ID()] {
				t.Fatalf("two nodes are called %s", n.ID())
			}
			ids[n.ID()] = true
			for purpose, a := range n.Addr {
				if other, taken := addrs[a.String()]; taken {
					t.Fatalf("%s wants %s for %s, which is %s", n.ID(), a, purpose, other)
				}
				addrs[a.String()] = n.ID() + " " + purpose
				if !a.Addr().IsLoopback() {
					t.Fatalf("%s listens on %s, which is not loopback", n.ID(), a)
				}
			}
		}
	})
}

func TestEveryZoneServesBothModels(t *testing.T) {
	served := map[string]map[string]bool{}
	for _, n := range DefaultLayout().BuildNodes() {
		if n.Role != "worker" {
			continue
		}
		zone := n.Region + "/" + n.Zone
		if served[zone] == nil {
			served[zone] = map[string]bool{}
		}
		served[zone][n.Model] = true
	}
	if len(served) != 6 {
		t.Fatalf("the default layout has %d zones, want 6", len(served))
	}
	for zone, models := range served {
		if len(models) != 2 {
			t.Errorf("zone %s serves %v, want both models", zone, models)
		}
	}
}

func TestInvalidLayoutsAreRefused(t *testing.T) {
	for _, l := range []Layout{
		{},
		{Globals: 3, Regions: 99, Gateways: 1, Zones: 1, Workers: 1},
		{Globals: 3, Regions: 1, Gateways: 1, Zones: 27, Workers: 1},
		{Globals: 3, Regions: 1, Gateways: 1, Zones: 1},
		{Globals: 3, Regions: 1, Gateways: 1, Zones: 1, Workers: 1, Net: 90},
	} {
		if l.checkLayout() == nil {
			t.Errorf("layout %+v is accepted", l)
		}
	}
}
