package regional

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"
)

// TestRefusalLimiterBoundsRateAndMemory: an address has a burst and a rate of refusals, other addresses are
// independent, and memory is bounded.
func TestRefusalLimiterBoundsRateAndMemory(t *testing.T) {
	var r refusalLimiter
	now := time.Unix(1000, 0)
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	checked := func(span time.Duration) (n int) {
		for end := now.Add(span); now.Before(end); now = now.Add(time.Millisecond) {
			if !r.isExhausted(a, now) {
				r.addRefusal(a, now)
				n++
			}
		}
		return n
	}
	if n := checked(time.Second); n < refusalBurst || n > refusalBurst+refusalRate+1 {
		t.Errorf("%d were checked in the first second", n)
	}
	if n := checked(10 * time.Second); n < 10*refusalRate-1 || n > 10*refusalRate+1 {
		t.Errorf("%d were checked in ten seconds after that", n)
	}
	if r.isExhausted(b, now) || r.isExhausted(netip.Addr{}, now) {
		t.Error("another address is refused")
	}
	for i := range uint32(2 * maxRefusalAddrs) {
		var x [4]byte
		binary.BigEndian.PutUint32(x[:], 10<<24|i)
		r.addRefusal(netip.AddrFrom4(x), now)
		if len(r.levels) > maxRefusalAddrs {
			t.Fatalf("%d addresses are remembered", len(r.levels))
		}
	}
	for i := range uint64(10) { // hosts of one /64 count as one client
		x := netip.MustParseAddr("2001:db8::1").As16()
		binary.BigEndian.PutUint64(x[8:], i)
		for range refusalBurst / 10 {
			r.addRefusal(netip.AddrFrom16(x), now)
		}
	}
	if !r.isExhausted(netip.MustParseAddr("2001:db8::ffff"), now) {
		t.Error("each address of a /64 has refusals of its own")
	}
}
