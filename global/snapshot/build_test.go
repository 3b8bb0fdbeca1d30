package snapshot

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
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

func TestChangesAreRecentForAWhile(t *testing.T) {
	var c ChangeTracker
	now := time.Now()
	var none, one steer.RegionSet
	one.Add(0)
	for _, step := range []struct {
		drained steer.RegionSet
		after   time.Duration
		want    bool
	}{
		{one, 0, false}, // the first snapshot after a start is not a change
		{one, time.Hour, false},
		{none, time.Second, true},
		{none, changeWindow - time.Second, true},
		{none, time.Second, false},
		{one, time.Hour, true},
		{one, changeWindow, false},
	} {
		now = now.Add(step.after)
		if got := c.trackChanges(step.drained, none, now); got != step.want {
			t.Errorf("after %s: changed recently %v", step.after, got)
		}
	}
}
