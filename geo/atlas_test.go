package geo

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// OpenAtlas builds an Atlas from files.
func OpenAtlas(cfg Config) (*Atlas, error) { return BuildAtlas(cfg, os.ReadFile) }

func openAtlas(t testing.TB, cfg Config) *Atlas {
	t.Helper()
	a, err := OpenAtlas(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func locateAddr(t testing.TB, a *Atlas, addr string) AddressInfo {
	t.Helper()
	return a.Locate(netip.MustParseAddr(addr))
}

// checkLocated checks the city, source, prefix and scope of an address.
func checkLocated(t *testing.T, a *Atlas, addr, city, source, prefix string, scope int) {
	t.Helper()
	f := locateAddr(t, a, addr)
	if f.Location.City != city || f.Source != source || f.Prefix.String() != prefix || int(f.Scope) != scope {
		t.Errorf("%s: %q by %s, %s scope %d; want %q by %s, %s scope %d",
			addr, f.Location.City, f.Source, f.Prefix, f.Scope, city, source, prefix, scope)
	}
	placed := source != SourceNone && source != SourceSpecial
	if (f.Cell != NoCell) != placed || placed && f.Cell != CellAt(f.Location) {
		t.Errorf("%s: cell %d of %v by %s", addr, f.Cell, f.Location, f.Source)
	}
}

func TestDemoNetworksAreLocated(t *testing.T) {
	a := openAtlas(t, Config{Demo: true})
	checkLocated(t, a, "192.0.2.1", "Ashburn", SourceDemo, "192.0.2.0/26", 26)
	checkLocated(t, a, "192.0.2.63", "Ashburn", SourceDemo, "192.0.2.0/26", 26)
	checkLocated(t, a, "192.0.2.64", "Chicago", SourceDemo, "192.0.2.64/26", 26)
	checkLocated(t, a, "198.51.100.5", "Frankfurt", SourceDemo, "198.51.100.0/26", 26)
	checkLocated(t, a, "203.0.113.255", "Sydney", SourceDemo, "203.0.113.192/26", 26)
	checkLocated(t, a, "2001:db8:5ff::1", "Frankfurt", SourceDemo, "2001:db8:500::/40", 40)
	checkLocated(t, a, "127.8.9.10", "Ashburn", SourceDemo, "127.0.0.0/8", 8)
	checkLocated(t, a, "::1", "Ashburn", SourceDemo, "::1/128", 128)
	checkLocated(t, a, "2001:db8:8000::1", "", SourceSpecial, "2001:db8:8000::/33", 33)
	if got := len(a.Cells()); got != len(demoCities) {
		t.Errorf("%d cells, want %d", got, len(demoCities))
	}
	for _, d := range DemoNetworks() {
		if f := a.Locate(d.Prefix.Addr()); f.Location != d.Location || f.Prefix != d.Prefix {
			t.Errorf("%s is %v at %s", d.Prefix, f.Location, f.Prefix)
		}
	}
}

func TestSpecialAddressesHaveNoLocation(t *testing.T) {
	a := openAtlas(t, Config{})
	for _, addr := range []string{
		"10.1.2.3", "100.64.0.1", "127.0.0.1", "169.254.1.1", "172.31.0.1", "192.0.2.1",
		"192.168.1.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "0.0.0.0", "::", "::1", "fc00::1", "fe80::1%eth0",
		"ff02::1", "2001:db8::1", "64:ff9b:1::1", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "2002:a00:1::1",
	} {
		if f := locateAddr(t, a, addr); f.Cell != NoCell || f.Source != SourceSpecial || f.Scope == 0 {
			t.Errorf("%s: %+v, want special, with a scope that covers no other address", addr, f)
		}
	}
	checkLocated(t, a, "10.1.2.3", "", SourceSpecial, "10.0.0.0/8", 8)
	checkLocated(t, a, "9.9.9.9", "", SourceNone, "8.0.0.0/7", 7)
	if f := a.Locate(netip.Addr{}); f.Cell != NoCell || f.Source != SourceNone || f.Prefix.IsValid() {
		t.Errorf("no address: %+v", f)
	}
}

func TestEmbeddedIPv4IsLocated(t *testing.T) {
	a := openAtlas(t, Config{Demo: true})
	for name, c := range map[string]struct {
		addr  string
		scope int
	}{
		"IPv4-mapped":     {"::ffff:203.0.113.1", 122},
		"IPv4-compatible": {"::203.0.113.1", 122},
		"SIIT":            {"::ffff:0:203.0.113.1", 122},
		"NAT64":           {"64:ff9b::203.0.113.1", 122},
		"6to4":            {"2002:cb00:7101:1::5", 42},
		"Teredo":          {"2001:0:4136:e378:8000:63bf:34ff:8efe", 122},
	} {
		t.Run(name, func(t *testing.T) {
			checkLocated(t, a, c.addr, "Tokyo", SourceDemo, "203.0.113.0/26", c.scope)
		})
	}
}

func TestOverridesWinAndLongerWins(t *testing.T) {
	file := filepath.Join(t.TempDir(), "overrides.csv")
	text := "# our offices\n10.1.0.0/16, 50.11, 8.68, Frankfurt, DE\n\n10.1.2.3, 35.68, 139.69\n2001:db8:100::/48,1,2,There\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	override := Override{netip.MustParsePrefix("192.0.0.0/8"), Location{City: "Here", Lat: 1, Lon: 2}}
	a := openAtlas(t, Config{Demo: true, Overrides: []Override{override}, OverridesFile: file})
	checkLocated(t, a, "10.1.9.9", "Frankfurt", SourceOverride, "10.1.8.0/21", 21)
	checkLocated(t, a, "10.1.2.3", "", SourceOverride, "10.1.2.3/32", 32)
	checkLocated(t, a, "10.1.2.2", "Frankfurt", SourceOverride, "10.1.2.2/32", 32) // adjacent to a longer override
	checkLocated(t, a, "10.2.0.0", "", SourceSpecial, "10.2.0.0/15", 15)
	checkLocated(t, a, "192.0.2.1", "Here", SourceOverride, "192.0.0.0/8", 8)
	checkLocated(t, a, "2001:db8:100:1::", "There", SourceOverride, "2001:db8:100::/48", 48)
	checkLocated(t, a, "2001:db8:101::", "Ashburn", SourceDemo, "2001:db8:101::/48", 48)
	if f := locateAddr(t, a, "10.1.9.9"); f.Location.Country != "DE" || f.Location.Continent != "EU" {
		t.Errorf("place %v", f.Location)
	}
	expectError(t, Config{Overrides: []Override{{Prefix: override.Prefix, Location: Location{Lat: 91}}}}, "192.0.0.0/8")
	expectError(t, Config{Overrides: []Override{{Location: Location{Lat: 1}}}}, "not a network")
	expectError(t, Config{OverridesFile: file + ".none"}, "no such file")
}

func TestLocateAllocatesNothing(t *testing.T) {
	a := openAtlas(t, Config{Demo: true})
	for _, s := range []string{"203.0.113.1", "2001:db8:500::1", "::ffff:203.0.113.1", "10.0.0.1", "fe80::1"} {
		addr := netip.MustParseAddr(s)
		var sum int32
		if n := testing.AllocsPerRun(1000, func() { sum += a.Locate(addr).Cell }); n != 0 {
			t.Errorf("%s: %v allocations", s, n)
		}
	}
}

func TestCellsDoNotDependOnNetworkOrder(t *testing.T) {
	near := Override{netip.MustParsePrefix("10.0.0.0/16"), Location{City: "Near", Lat: 50.9, Lon: 9.1}}
	far := Override{netip.MustParsePrefix("10.1.0.0/16"), Location{City: "Far", Lat: 50.1, Lon: 8.2}}
	bare := Override{netip.MustParsePrefix("10.2.0.0/16"), Location{Lat: 51, Lon: 9}}
	for _, order := range [][]Override{{near, far, bare}, {bare, far, near}, {far, bare, near}} {
		cells := openAtlas(t, Config{Overrides: order}).Cells()
		if len(cells) != 1 || cells[0].Location.City != "Near" || cells[0].Name != CellName(cells[0].ID) {
			t.Errorf("cells %v", cells)
		}
	}
	demo := openAtlas(t, Config{Demo: true}).Cells()
	if !slices.IsSortedFunc(demo, func(a, b Cell) int { return int(a.ID - b.ID) }) {
		t.Errorf("cells are not sorted: %v", demo)
	}
}
