package dns

import (
	"net/netip"
	"testing"

	"github.com/spillway-lb/spillway/internal/httpedge/clientip"
)

// The addresses of one IPv6 /64 share one bound on connections; other networks have their own.
func TestConnectionsAreBoundedPerNetwork(t *testing.T) {
	cs := newConnTable(16) // 4 for each
	admit := func(from string) bool {
		a := netip.MustParseAddr(from)
		_, ok := cs.addConn(&tcpConn{clientAddr: a, source: clientip.ClientLimitKey(a), table: cs})
		return ok
	}
	for i, want := range []bool{true, true, true, true, false} {
		if got := admit("2001:db8::" + string(rune('1'+i))); got != want {
			t.Errorf("connection %d of one /64: %v", i+1, got)
		}
	}
	for _, other := range []string{"2001:db8:0:1::1", "192.0.2.1", "192.0.2.2"} {
		if !admit(other) {
			t.Errorf("%s is refused", other)
		}
	}
}
