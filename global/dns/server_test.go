package dns

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func TestNewRefusesBadConfig(t *testing.T) {
	view := func() Snapshot { return newFakeSnapshot() }
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"no snapshot": {Config{Listen: []string{"127.0.0.1:0"}}, "Snapshot is missing"},
		"no address":  {Config{Snapshot: view}, "no address to listen on"},
		"no port":     {Config{Snapshot: view, Listen: []string{"127.0.0.1"}}, "write host:port"},
		"not ours":    {Config{Snapshot: view, Listen: []string{"192.0.2.1:0"}}, "192.0.2.1:0"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(c.cfg)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestPortInUse(t *testing.T) {
	first := startServer(t, newFakeSnapshot(), nil)
	udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for name, addr := range map[string]string{"by a server": first.Addrs()[0].String(), "by UDP alone": udp.LocalAddr().String()} {
		t.Run(name, func(t *testing.T) {
			_, err := New(Config{Listen: []string{addr}, Snapshot: func() Snapshot { return nil }})
			if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), addr) {
				t.Errorf("error %v, want one that names %s", err, addr)
			}
		})
	}
}

func TestServfailWithoutASnapshot(t *testing.T) {
	s := startServer(t, newFakeSnapshot(), func(c *Config) { c.Snapshot = func() Snapshot { return nil } })
	for _, raw := range [][]byte{plainQuery("chat.api.example.", dns.TypeA), appendOPT(plainQuery("chat.api.example.", dns.TypeA), 1232, 0, nil)} {
		m := unpackMessage(t, exchangeOnce(t, s, raw))
		if m.Rcode != dns.RcodeServerFailure || m.Authoritative || len(m.Ns) != 0 {
			t.Errorf("got %v, want a bare SERVFAIL", m)
		}
	}
}

// exchangeOnce exchanges one message over UDP without checking queries after it.
func exchangeOnce(t *testing.T, s *Server, raw []byte) []byte {
	t.Helper()
	c, err := net.Dial("udp", s.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(raw); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	buf := make([]byte, 65536)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return buf[:n]
}

func TestPanicInTheSnapshotCostsOneAnswer(t *testing.T) {
	broken, well := newFakeSnapshot(), newFakeSnapshot()
	broken.panics = true
	var asked atomic.Bool
	s := startServer(t, well, func(c *Config) {
		c.Snapshot = func() Snapshot {
			if asked.Swap(true) {
				return well
			}
			return broken
		}
	})
	if raw := exchangeUDP(t, s, plainQuery("chat.api.example.", dns.TypeA)); raw != nil {
		t.Errorf("answer %x of a broken snapshot", raw)
	}
}

func TestSnapshotThatCannotBePackedIsServfail(t *testing.T) {
	w := newFakeSnapshot()
	w.zone.Contact = strings.Repeat("a", 64) + ".example."
	s := startServer(t, w, nil)
	m := unpackMessage(t, exchangeOnce(t, s, plainQuery("api.example.", dns.TypeSOA)))
	if m.Rcode != dns.RcodeServerFailure || m.Authoritative {
		t.Errorf("got %v, want SERVFAIL", m)
	}
}

func TestWildcardAnswersFromTheAddressAsked(t *testing.T) {
	if !canSharePort {
		t.Skip("the system has one loopback address")
	}
	for listen, dests := range map[string][]string{
		"0.0.0.0:0": {"127.0.0.1", "127.0.0.2", "127.8.9.10"},
		":0":        {"127.0.0.1", "127.0.0.3", "::1"},
	} {
		s, err := New(Config{Listen: []string{listen}, Snapshot: func() Snapshot { return newFakeSnapshot() }})
		if err != nil {
			if strings.Contains(listen, ":0") && errors.Is(err, syscall.EAFNOSUPPORT) {
				t.Skip("the system has no IPv6")
			}
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, d := range dests {
			to := netip.AddrPortFrom(netip.MustParseAddr(d), s.Addrs()[0].Port())
			m := new(dns.Msg).SetQuestion("chat.api.example.", dns.TypeA)
			c := &dns.Client{Net: "udp", Timeout: time.Minute} // connected: packets of another source are not received
			if r, _, err := c.Exchange(m, to.String()); err != nil || len(r.Answer) != 1 {
				t.Errorf("%s asked by %s: %v %v", listen, d, r, err)
			}
		}
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

func TestEventsAreObserved(t *testing.T) {
	seen := make(chan QueryEvent, 16)
	s := startServer(t, newFakeSnapshot(), func(c *Config) { c.Observe = func(e QueryEvent) { seen <- e } })
	exchangeUDP(t, s, appendOPT(plainQuery("chat.api.example.", dns.TypeA), 1232, 0, encodeSubnet(1, 24, 0, 81, 2, 69)))
	exchangeTCP(t, s, setFlags(plainQuery("chat.api.example.", dns.TypeA), bitQR))
	want := map[QueryEvent]bool{
		{Count: 1, Qtype: dns.TypeA, Service: -1, Stale: true, FastPath: true}: false,
		{Count: 1, Rcode: RcodeDropped, Service: -1, Transport: TCP}:           false,
		{Count: 1, Qtype: dns.TypeA, Service: -1}:                              false, // the two checking queries
		{Count: 1, Qtype: dns.TypeA, Service: -1, Transport: TCP}:              false,
	}
	for missing := len(want); missing > 0; {
		e := <-seen
		if e.Duration <= 0 {
			t.Errorf("event %+v has no duration", e)
		}
		e.Duration = 0
		had, ok := want[e]
		if !ok {
			t.Fatalf("unexpected event %+v, missing of %v", e, want)
		}
		if !had {
			want[e] = true
			missing--
		}
	}
}

func TestConcurrentQueriesAreAnswered(t *testing.T) {
	s := startServer(t, newFakeSnapshot(), nil)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			c := &dns.Client{Net: "udp", Timeout: time.Minute}
			if i%4 == 0 {
				c.Net = "tcp"
			}
			for range 50 {
				m := new(dns.Msg).SetQuestion("chat.api.example.", dns.TypeA)
				r, _, err := c.Exchange(m, s.Addrs()[0].String())
				if err != nil || len(r.Answer) != 1 {
					t.Errorf("%v %v", r, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestServerStartsOnce(t *testing.T) {
	s := startServer(t, newFakeSnapshot(), nil)
	if err := s.Start(t.Context()); err == nil {
		t.Error("a second start succeeded")
	}
	stopped, err := New(Config{Listen: []string{"127.0.0.1:0"}, Snapshot: func() Snapshot { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stopped.Stop(t.Context()), stopped.Stop(t.Context())); err != nil {
		t.Error(err)
	}
	if err := stopped.Start(t.Context()); err == nil {
		t.Error("a start after the end succeeded")
	}
}

// TestDirectAnswerEqualsUDPAnswer sends the same queries to a server without a socket and to one over UDP.
func TestDirectAnswerEqualsUDPAnswer(t *testing.T) {
	w := newFakeSnapshot()
	s := startServer(t, w, nil)
	socketless, err := New(Config{NoSockets: true, Snapshot: func() Snapshot { return w }})
	if err != nil {
		t.Fatal(err)
	}
	if len(socketless.Addrs()) != 0 {
		t.Errorf("it listens on %v", socketless.Addrs())
	}
	home := netip.MustParseAddr("127.0.0.1")
	for _, raw := range [][]byte{
		plainQuery("chat.api.example.", dns.TypeA), appendOPT(plainQuery("chat.api.example.", dns.TypeAAAA), 1232, 0, nil),
		plainQuery("api.example.", dns.TypeSOA), plainQuery("nothing.api.example.", dns.TypeA), plainQuery("elsewhere.", dns.TypeA),
	} {
		got, ok := socketless.Answer(nil, raw, home)
		if want := exchangeUDP(t, s, raw); !ok || !bytes.Equal(got, want) {
			t.Errorf("answered %v\n%x, over UDP\n%x", ok, got, want)
		}
	}
	if got, ok := socketless.Answer(make([]byte, 0, 10), []byte("garbage"), home); ok {
		t.Errorf("garbage is answered %x", got)
	}
}

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
