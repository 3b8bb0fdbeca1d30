package geo

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// TestSpotIsWhatLocateSays draws addresses of both families, inside and outside of what the demo places.
func TestSpotIsWhatLocateSays(t *testing.T) {
	a := open(t, Config{Demo: true, Overrides: []Override{{netip.MustParsePrefix("20.1.0.0/16"), Place{Lat: 3, Lon: 4}}}})
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SampledFrom([]string{"192.0.2.0", "203.0.113.0", "20.1.0.0", "10.0.0.0", "9.9.9.9", "2001:db8:500::", "::ffff:203.0.113.0", "::"}).Draw(t, "base")
		addr := netip.MustParseAddr(base)
		b := addr.AsSlice()
		b[len(b)-1] = rapid.Byte().Draw(t, "last")
		b[len(b)-3] ^= rapid.Byte().Draw(t, "other")
		addr, _ = netip.AddrFromSlice(b)
		f := a.Locate(addr)
		if cell, scope := a.Spot(addr); cell != f.Cell || scope != f.Scope {
			t.Fatalf("%s: cell %d scope %d, Locate says %+v", addr, cell, scope, f)
		}
	})
	if cell, scope := a.Spot(netip.Addr{}); cell != NoCell || scope != 0 {
		t.Errorf("no address: cell %d scope %d", cell, scope)
	}
}
