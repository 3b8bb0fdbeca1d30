package snapshot

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/spillway-lb/spillway/internal/spec"
)

func TestGatewaysThatShareAnAddressAreAnsweredOnce(t *testing.T) {
	a, b := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	r := &spec.Region{Gateways: []spec.Gateway{
		{Name: "g1", Addresses: []netip.Addr{a}}, {Name: "g2", Addresses: []netip.Addr{b, a}}, {Name: "g3", Addresses: []netip.Addr{b}},
	}}
	if got := gatewayAddrs(r, func(string) bool { return true }); !slices.Equal(got, []netip.Addr{a, b}) {
		t.Errorf("answered with %v", got)
	}
	if got := gatewayAddrs(r, func(name string) bool { return name == "g3" }); !slices.Equal(got, []netip.Addr{b}) {
		t.Errorf("with only g3 the answer is %v", got)
	}
}
