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

// testNameServer answers A questions with fixed addresses.
type testNameServer struct {
	conn    *net.UDPConn
	addrs   atomic.Pointer[[]netip.Addr]
	ttl     uint32
	rcode   byte
	silent  atomic.Bool
	queries atomic.Int64
	// afterQuery, if set, is called after each reply with the number of queries so far.
	afterQuery atomic.Pointer[func(n int64)]
	from       atomic.Pointer[netip.AddrPort]
	done       chan struct{}
}

func startNameServer(t testing.TB, ttl uint32, rcode byte, addrs ...string) *testNameServer {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s := &testNameServer{conn: conn, ttl: ttl, rcode: rcode, done: make(chan struct{})}
	s.setAddrs(addrs...)
	go s.serveQueries()
	t.Cleanup(func() {
		conn.Close()
		<-s.done
	})
	return s
}

func (s *testNameServer) setAddrs(addrs ...string) {
	var list []netip.Addr
	for _, a := range addrs {
		list = append(list, netip.MustParseAddr(a))
	}
	s.addrs.Store(&list)
}

func (s *testNameServer) addr() string { return s.conn.LocalAddr().String() }

func (s *testNameServer) serveQueries() {
	defer close(s.done)
	buf := make([]byte, 1500)
	for {
		n, from, err := s.conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		number := s.queries.Add(1)
		s.from.Store(&from)
		if !s.silent.Load() {
			s.conn.WriteToUDPAddrPort(s.makeReply(buf[:n]), from)
		}
		if f := s.afterQuery.Load(); f != nil {
			(*f)(number)
		}
	}
}

func (s *testNameServer) makeReply(query []byte) []byte {
	end := skipName(query, dnsHeaderBytes) + 4
	out := append([]byte(nil), query[:end]...)
	out[2], out[3] = 0x84, s.rcode
	for i := 6; i < dnsHeaderBytes; i++ {
		out[i] = 0
	}
	if s.rcode != 0 || binary.BigEndian.Uint16(query[end-4:]) != 1 {
		return out
	}
	for _, a := range *s.addrs.Load() {
		out[7]++
		out = append(out, 0xc0, dnsHeaderBytes, 0, 1, 0, 1)
		out = binary.BigEndian.AppendUint32(out, s.ttl)
		out = append(out, 0, 4)
		out = append(out, a.AsSlice()...)
	}
	return out
}

func newTestResolver(t testing.TB, servers ...string) (*stubResolver, *dnsCounts) {
	counts := &dnsCounts{}
	return newResolver(servers, netip.MustParseAddr("127.0.0.1"), 200*time.Millisecond, counts), counts
}

func mustLookup(t testing.TB, r *stubResolver, fresh bool) []netip.Addr {
	t.Helper()
	addrs, err := r.lookupAddrs(context.Background(), "chat.api.example", fresh)
	if err != nil {
		t.Fatal(err)
	}
	return addrs
}

func TestResolverCachesAnswersForTheirTTL(t *testing.T) {
	s := startNameServer(t, 60, 0, "192.0.2.1", "192.0.2.2")
	r, counts := newTestResolver(t, s.addr())
	if addrs := mustLookup(t, r, false); len(addrs) != 2 {
		t.Fatalf("addresses %v", addrs)
	}
	r.mu.Lock()
	kept := time.Until(r.cache["chat.api.example."].until)
	r.mu.Unlock()
	if kept < 55*time.Second || kept > 60*time.Second {
		t.Errorf("kept for %v, the answer says 60 s", kept)
	}
	mustLookup(t, r, false)
	if n := s.queries.Load(); n != 1 || counts.cached.Load() != 1 {
		t.Errorf("%d questions, %d answers from the cache", n, counts.cached.Load())
	}
	s.setAddrs("192.0.2.9")
	if addrs := mustLookup(t, r, true); len(addrs) != 1 || addrs[0].String() != "192.0.2.9" {
		t.Errorf("resolved again: %v", addrs)
	}
}

func TestResolverQueriesAgainAfterTTL(t *testing.T) {
	s := startNameServer(t, 0, 0, "192.0.2.1")
	r, _ := newTestResolver(t, s.addr())
	mustLookup(t, r, false)
	mustLookup(t, r, false)
	if n := s.queries.Load(); n != 2 {
		t.Errorf("%d questions, want 2: a TTL of 0 is not kept", n)
	}
}

func TestResolverFailsOverToNextServer(t *testing.T) {
	good := startNameServer(t, 0, 0, "192.0.2.1")
	silent := startNameServer(t, 0, 0)
	silent.silent.Store(true)
	broken := startNameServer(t, 0, 2) // SERVFAIL
	r, counts := newTestResolver(t, good.addr(), silent.addr(), broken.addr())
	for range 3 { // each server is asked first once
		if addrs := mustLookup(t, r, true); len(addrs) != 1 {
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

func TestResolverFailsWithoutAnyAnswer(t *testing.T) {
	refusing := startNameServer(t, 0, 5) // REFUSED
	r, counts := newTestResolver(t, refusing.addr())
	if _, err := r.lookupAddrs(context.Background(), "chat.api.example", false); err == nil {
		t.Error("an address out of nothing")
	}
	if counts.failedLookups.Load() != 1 {
		t.Errorf("%d resolutions failed, want 1", counts.failedLookups.Load())
	}
}

func TestResolverUsesItsSourceAddress(t *testing.T) {
	probe, err := net.ListenPacket("udp", "127.0.4.7:0")
	if err != nil {
		t.Skip("this system has only one loopback address: clients cannot pose as places here")
	}
	probe.Close()
	s := startNameServer(t, 0, 0, "192.0.2.1")
	r := newResolver([]string{s.addr()}, netip.MustParseAddr("127.0.4.7"), time.Second, &dnsCounts{})
	mustLookup(t, r, false)
	if from := s.from.Load().Addr().String(); from != "127.0.4.7" {
		t.Errorf("asked from %s, want 127.0.4.7", from)
	}
}

func TestReadAnswerParsesDNSResponses(t *testing.T) {
	question := []byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 'a', 0, 0, 1, 0, 1}
	s := &testNameServer{ttl: 7}
	s.setAddrs("192.0.2.1", "192.0.2.2")
	whole := s.makeReply(question)
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
	s := &testNameServer{ttl: 7}
	s.setAddrs("192.0.2.1")
	f.Add(s.makeReply([]byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 'a', 0, 0, 1, 0, 1}))
	f.Fuzz(func(t *testing.T, msg []byte) {
		if _, ttl, ok := readAnswer(msg); ok && ttl < -1 {
			t.Fatalf("TTL %d", ttl)
		}
	})
}
