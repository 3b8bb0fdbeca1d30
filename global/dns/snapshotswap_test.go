package dns

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// TestSnapshotSwapsLoseNoQuery replaces the snapshot continuously, each with other addresses, while clients of many
// networks query. Every query is answered completely from one of the snapshots.
func TestSnapshotSwapsLoseNoQuery(t *testing.T) {
	var view atomic.Pointer[staticSnapshot]
	next := func(i byte) *staticSnapshot {
		w := newStaticSnapshot()
		to := []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, i}), netip.AddrFrom4([4]byte{203, 0, 114, i})}
		w.answer = ServiceAnswer{Addrs: to, Records: NewPreparedRecords(to, 0), TTL: uint32(i), Scope: 24, OK: true}
		return w
	}
	view.Store(next(1))
	s := startServer(t, newFakeSnapshot(), func(c *Config) { c.Snapshot = func() Snapshot { return view.Load() } })
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
	for i := 0; i < 500 || len(seen) < 2; i++ { // until two snapshots have answered
		q := appendOPT(plainQuery("chat.api.example.", dns.TypeA), 1232, 0, encodeSubnet(1, 24, 0, 20, byte(i>>8), byte(i)))
		m := unpackMessage(t, exchangeOnce(t, s, q))
		if len(m.Answer) != 2 || findSubnet(m).SourceScope != 24 {
			t.Fatalf("got %v", m)
		}
		ttl := m.Answer[0].Header().Ttl
		for _, rr := range m.Answer {
			if a := rr.(*dns.A); uint32(a.A[3]) != ttl || a.Hdr.Ttl != ttl {
				t.Fatalf("an answer of two snapshots: %v", m)
			}
		}
		seen[ttl] = true
	}
	close(stop)
	<-done
}
