package fleet

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

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

// TestRelayAddressesAreUniqueAndConfigsUseThem: every link of a layout with relays has an address of its own, or shares it
// with links to the same node, and no node's config names another node's own address.
func TestRelayAddressesAreUniqueAndConfigsUseThem(t *testing.T) {
	for _, one := range []bool{false, true} {
		l := Layout{Globals: 3, Regions: 3, Gateways: 2, Zones: 2, Locals: 2, Workers: 3, OneAddress: one, BasePort: 20000, Relays: true}
		p, err := WriteFiles(t.TempDir(), l)
		if err != nil {
			t.Fatal(err)
		}
		used := map[string]string{}
		for _, n := range p.Nodes {
			for purpose, a := range n.Addr {
				used[a.String()] = n.ID() + " " + purpose
			}
		}
		own := maps.Clone(used)
		for _, k := range p.Links() {
			if other, taken := used[k.Listen.String()]; taken && other != k.Class+" to "+k.To {
				t.Errorf("%s listens on %s, which is %s", k.Name, k.Listen, other)
			}
			used[k.Listen.String()] = k.Class + " to " + k.To
			if own[k.Forward.String()] != k.To+" "+purposeByClass[k.Class] {
				t.Errorf("%s leads to %s, which is %q", k.Name, k.Forward, own[k.Forward.String()])
			}
		}
		for _, n := range p.Nodes {
			text, err := os.ReadFile(p.ConfigPath(n))
			if err != nil {
				t.Fatal(err)
			}
			for a, owner := range own {
				if strings.Contains(string(text), a) && !strings.HasPrefix(owner, n.ID()+" ") {
					t.Errorf("config of %s names %s (%s) and not its relay", n.ID(), a, owner)
				}
			}
		}
		again, err := ReadFiles(p.Dir)
		if err != nil || !slices.Equal(again.Links(), p.Links()) || len(p.Links()) < 40 {
			t.Errorf("the directory gives other links: %d and %d, %v", len(again.Links()), len(p.Links()), err)
		}
	}
}

func TestLinksHaveTheDelayOfTheirDistance(t *testing.T) {
	rtt := map[string]time.Duration{}
	for _, k := range (Layout{Globals: 3, Regions: 3, Gateways: 1, Zones: 1, Workers: 1, Relays: true}).BuildLinks() {
		rtt[k.Name] = k.RTT
	}
	for name, bounds := range map[string][2]time.Duration{
		"raft:g1>g2":                       {80 * time.Millisecond, 110 * time.Millisecond},
		"peer:frankfurt-gw1>tokyo-gw1":     {200 * time.Millisecond, 260 * time.Millisecond},
		"uplink:virginia-gw1>g1":           {zoneRTT, zoneRTT},
		"http:tokyo-gw1>tokyo-a-local1":    {zoneRTT, zoneRTT},
		"worker:tokyo-a-local1>tokyo-a-w1": {0, 0},
	} {
		if got, ok := rtt[name]; !ok || got < bounds[0] || got > bounds[1] {
			t.Errorf("round trip of %s is %s (%v), want %s to %s", name, got, ok, bounds[0], bounds[1])
		}
	}
}
