package dns

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// TestSwapsLoseNoQuery puts a new view in force all the time, each sending everybody elsewhere, while clients of many
// networks ask: every query is answered, from one of the views whole.
func TestSwapsLoseNoQuery(t *testing.T) {
	var view atomic.Pointer[still]
	next := func(i byte) *still {
		w := newStill()
		to := []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, i}), netip.AddrFrom4([4]byte{203, 0, 114, i})}
		w.given = Answer{Addrs: to, Ready: NewRecords(to, 0), TTL: uint32(i), Scope: 24, OK: true}
		return w
	}
	view.Store(next(1))
	s := start(t, newWorld(), func(c *Config) { c.View = func() View { return view.Load() } })
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := byte(1); ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Microsecond):
				view.Store(next(max(i, 1)))
			}
		}
	}()
	seen := map[uint32]bool{}
	for i := range 500 {
		q := edns(query1("chat.api.example.", dns.TypeA), 1232, 0, ecs(1, 24, 0, 20, byte(i>>8), byte(i)))
		m := unpack(t, send(t, s, q))
		if len(m.Answer) != 2 || subnetOf(m).SourceScope != 24 {
			t.Fatalf("got %v", m)
		}
		ttl := m.Answer[0].Header().Ttl
		for _, rr := range m.Answer {
			if a := rr.(*dns.A); uint32(a.A[3]) != ttl || a.Hdr.Ttl != ttl {
				t.Fatalf("an answer of two views: %v", m)
			}
		}
		seen[ttl] = true
	}
	close(stop)
	<-done
	if len(seen) < 2 {
		t.Errorf("all answers came from one view")
	}
}
