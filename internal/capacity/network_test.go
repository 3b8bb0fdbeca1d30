package capacity

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

func TestNetworkNumberRoundTrip(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.77": "192.0.2.0/24", "::ffff:192.0.2.77": "192.0.2.0/24", "0.0.0.1": "0.0.0.0/24", "255.255.255.255": "255.255.255.0/24",
		"2001:db8:1:2::3": "2001:db8:1::/48", "::1": "::/48", "ffff:ffff:ffff:ffff::": "ffff:ffff:ffff::/48",
	} {
		got, ok := NetworkPrefix(NetworkNumber(netip.MustParseAddr(addr)))
		if !ok || got.String() != want {
			t.Errorf("%s is of %s (%v), want %s", addr, got, ok, want)
		}
	}
	for _, n := range []uint64{1 << 24, 1<<48 - 1, 1 << 49, 1 << 63} {
		if p, ok := NetworkPrefix(n); ok {
			t.Errorf("%#x is taken for %s", n, p)
		}
	}
}

func TestMinKnownLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func() int64 { return rapid.Int64Range(0, 3).Draw(t, "millis") }
		a, b, c := draw(), draw(), draw()
		if minKnown(a, b) != minKnown(b, a) || minKnown(minKnown(a, b), c) != minKnown(a, minKnown(b, c)) || minKnown(a, 0) != a {
			t.Fatalf("%d, %d, %d", a, b, c)
		}
	})
}

func TestLoadSeconds(t *testing.T) {
	for _, c := range []struct {
		m    ModelCapacity
		want float64
		ok   bool
	}{
		{ModelCapacity{}, 0, false},
		{ModelCapacity{Warm: 1}, 2, true},
		{ModelCapacity{Cold: 1}, 30, true},
		{ModelCapacity{Warm: 1, WarmMillis: 400, Cold: 1}, 0.4, true},
		{ModelCapacity{Cold: 3, ColdMillis: 12_500}, 12.5, true},
		{ModelCapacity{Warm: 1, WarmMillis: 9000, Cold: 1, ColdMillis: 3000}, 3, true},
		{ModelCapacity{WarmMillis: 400}, 0, false},
	} {
		if got, ok := c.m.LoadSeconds(2, 30); got != c.want || ok != c.ok {
			t.Errorf("%+v: %v s, %v", c.m, got, ok)
		}
	}
}
