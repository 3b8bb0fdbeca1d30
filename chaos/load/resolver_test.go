package load

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"
)

// nameServer answers A questions with fixed addresses.
type nameServer struct {
	conn  *net.UDPConn
	addrs atomic.Pointer[[]netip.Addr]
	ttl   uint32
	rcode byte
	mute  atomic.Bool
	asked atomic.Int64
	from  atomic.Pointer[netip.AddrPort]
	done  chan struct{}
}

func serveNames(t testing.TB, ttl uint32, rcode byte, addrs ...string) *nameServer {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{conn: conn, ttl: ttl, rcode: rcode, done: make(chan struct{})}
	s.set(addrs...)
	go s.run()
	t.Cleanup(func() {
		conn.Close()
		<-s.done
	})
	return s
}

func (s *nameServer) set(addrs ...string) {
	var list []netip.Addr
	for _, a := range addrs {
		list = append(list, netip.MustParseAddr(a))
	}
	s.addrs.Store(&list)
}

func (s *nameServer) addr() string { return s.conn.LocalAddr().String() }

func (s *nameServer) run() {
	defer close(s.done)
	buf := make([]byte, 1500)
	for {
		n, from, err := s.conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		s.asked.Add(1)
		s.from.Store(&from)
		if !s.mute.Load() {
			s.conn.WriteToUDPAddrPort(s.reply(buf[:n]), from)
		}
	}
}

func (s *nameServer) reply(query []byte) []byte {
	end := skipName(query, dnsHeader) + 4
	out := append([]byte(nil), query[:end]...)
	out[2], out[3] = 0x84, s.rcode
	for i := 6; i < dnsHeader; i++ {
		out[i] = 0
	}
	if s.rcode != 0 || binary.BigEndian.Uint16(query[end-4:]) != 1 {
		return out
	}
	for _, a := range *s.addrs.Load() {
		out[7]++
		out = append(out, 0xc0, dnsHeader, 0, 1, 0, 1)
		out = binary.BigEndian.AppendUint32(out, s.ttl)
		out = append(out, 0, 4)
		out = append(out, a.AsSlice()...)
	}
	return out
}

func stub(t testing.TB, servers ...string) (*resolver, *dnsCounts) {
	counts := &dnsCounts{}
	return newResolver(servers, netip.MustParseAddr("127.0.0.1"), 200*time.Millisecond, counts), counts
}

func lookup(t testing.TB, r *resolver, fresh bool) []netip.Addr {
	t.Helper()
	addrs, err := r.lookup(context.Background(), "chat.api.example", fresh)
	if err != nil {
		t.Fatal(err)
	}
	return addrs
}

func TestResolverKeepsAnswersForTheirTTL(t *testing.T) {
	s := serveNames(t, 60, 0, "192.0.2.1", "192.0.2.2")
	r, counts := stub(t, s.addr())
	if addrs := lookup(t, r, false); len(addrs) != 2 {
		t.Fatalf("addresses %v", addrs)
	}
	r.mu.Lock()
	kept := time.Until(r.cache["chat.api.example."].until)
	r.mu.Unlock()
	if kept < 55*time.Second || kept > 60*time.Second {
		t.Errorf("kept for %v, the answer says 60 s", kept)
	}
	lookup(t, r, false)
	if n := s.asked.Load(); n != 1 || counts.cached.Load() != 1 {
		t.Errorf("%d questions, %d answers from the cache", n, counts.cached.Load())
	}
	s.set("192.0.2.9")
	if addrs := lookup(t, r, true); len(addrs) != 1 || addrs[0].String() != "192.0.2.9" {
		t.Errorf("asked anew: %v", addrs)
	}
}

func TestResolverAsksAgainAfterTheTTL(t *testing.T) {
	s := serveNames(t, 0, 0, "192.0.2.1")
	r, _ := stub(t, s.addr())
	lookup(t, r, false)
	lookup(t, r, false)
	if n := s.asked.Load(); n != 2 {
		t.Errorf("%d questions, want 2: a TTL of 0 is not kept", n)
	}
}

func TestResolverPassesToTheNextServer(t *testing.T) {
	good := serveNames(t, 0, 0, "192.0.2.1")
	silent := serveNames(t, 0, 0)
	silent.mute.Store(true)
	broken := serveNames(t, 0, 2) // SERVFAIL
	r, counts := stub(t, good.addr(), silent.addr(), broken.addr())
	for range 3 { // each server is asked first once
		if addrs := lookup(t, r, true); len(addrs) != 1 {
			t.Errorf("addresses %v", addrs)
		}
	}
	if counts.lookups.Load() != 3 || counts.failedLookups.Load() != 0 {
		t.Errorf("%d resolutions, %d failed; want 3 and none", counts.lookups.Load(), counts.failedLookups.Load())
	}
	if counts.failedQueries.Load() == 0 || counts.queries.Load() <= counts.failedQueries.Load() {
		t.Errorf("%d queries, %d failed: silence and SERVFAIL must count, each query once", counts.queries.Load(), counts.failedQueries.Load())
	}
}

func TestResolverFailsWhenNobodyAnswers(t *testing.T) {
	nobody := serveNames(t, 0, 5) // REFUSED
	r, counts := stub(t, nobody.addr())
	if _, err := r.lookup(context.Background(), "chat.api.example", false); err == nil {
		t.Error("an address out of nothing")
	}
	if counts.failedLookups.Load() != 1 {
		t.Errorf("%d resolutions failed, want 1", counts.failedLookups.Load())
	}
}

func TestResolverLeavesFromItsPlace(t *testing.T) {
	probe, err := net.ListenPacket("udp", "127.0.4.7:0")
	if err != nil {
		t.Skip("this system has only one loopback address: clients cannot pose as places here")
	}
	probe.Close()
	s := serveNames(t, 0, 0, "192.0.2.1")
	r := newResolver([]string{s.addr()}, netip.MustParseAddr("127.0.4.7"), time.Second, &dnsCounts{})
	lookup(t, r, false)
	if from := s.from.Load().Addr().String(); from != "127.0.4.7" {
		t.Errorf("asked from %s, want 127.0.4.7", from)
	}
}

func TestReadAnswer(t *testing.T) {
	question := []byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 'a', 0, 0, 1, 0, 1}
	s := &nameServer{ttl: 7}
	s.set("192.0.2.1", "192.0.2.2")
	whole := s.reply(question)
	if rcode, ttl, ok := readAnswer(whole); rcode != 0 || ttl != 7 || !ok {
		t.Errorf("%d, %d, %v", rcode, ttl, ok)
	}
	for n := range whole {
		if _, _, ok := readAnswer(whole[:n]); ok {
			t.Errorf("%d of %d bytes pass for an answer", n, len(whole))
		}
	}
	if _, _, ok := readAnswer(question); ok {
		t.Error("a question passes for an answer")
	}
}

func FuzzReadAnswer(f *testing.F) {
	s := &nameServer{ttl: 7}
	s.set("192.0.2.1")
	f.Add(s.reply([]byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 'a', 0, 0, 1, 0, 1}))
	f.Fuzz(func(t *testing.T, msg []byte) {
		if _, ttl, ok := readAnswer(msg); ok && ttl < -1 {
			t.Fatalf("TTL %d", ttl)
		}
	})
}
