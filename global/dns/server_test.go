package dns

import (
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

func TestNewRefuses(t *testing.T) {
	view := func() View { return newWorld() }
	for name, c := range map[string]struct {
		cfg  Config
		says string
	}{
		"no view":    {Config{Listen: []string{"127.0.0.1:0"}}, "View is missing"},
		"no address": {Config{View: view}, "no address to listen on"},
		"no port":    {Config{View: view, Listen: []string{"127.0.0.1"}}, "write host:port"},
		"not ours":   {Config{View: view, Listen: []string{"192.0.2.1:0"}}, "192.0.2.1:0"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(c.cfg)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want one that says %q", err, c.says)
			}
		})
	}
}

func TestPortInUse(t *testing.T) {
	first := start(t, newWorld(), nil)
	udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for name, addr := range map[string]string{"by a server": first.Addrs()[0].String(), "by UDP alone": udp.LocalAddr().String()} {
		t.Run(name, func(t *testing.T) {
			_, err := New(Config{Listen: []string{addr}, View: func() View { return nil }})
			if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), addr) {
				t.Errorf("error %v, want one that names %s", err, addr)
			}
		})
	}
}

func TestWithoutAView(t *testing.T) {
	s := start(t, newWorld(), func(c *Config) { c.View = func() View { return nil } })
	for _, raw := range [][]byte{query1("chat.api.example.", dns.TypeA), edns(query1("chat.api.example.", dns.TypeA), 1232, 0, nil)} {
		m := unpack(t, send(t, s, raw))
		if m.Rcode != dns.RcodeServerFailure || m.Authoritative || len(m.Ns) != 0 {
			t.Errorf("got %v, want a bare SERVFAIL", m)
		}
	}
}

// send exchanges one message over UDP without a fence.
func send(t *testing.T, s *Server, raw []byte) []byte {
	t.Helper()
	c, err := net.Dial("udp", s.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(raw); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	buf := make([]byte, 65536)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return buf[:n]
}

func TestPanicInTheViewCostsOneAnswer(t *testing.T) {
	broken, well := newWorld(), newWorld()
	broken.panic = true
	var asked atomic.Bool
	s := start(t, well, func(c *Config) {
		c.View = func() View {
			if asked.Swap(true) {
				return well
			}
			return broken
		}
	})
	if raw := exchangeUDP(t, s, query1("chat.api.example.", dns.TypeA)); raw != nil {
		t.Errorf("answer %x of a broken view", raw)
	}
}

func TestViewThatNoMessageCanCarryIsServfail(t *testing.T) {
	w := newWorld()
	w.zone.Contact = strings.Repeat("a", 64) + ".example."
	s := start(t, w, nil)
	m := unpack(t, send(t, s, query1("api.example.", dns.TypeSOA)))
	if m.Rcode != dns.RcodeServerFailure || m.Authoritative {
		t.Errorf("got %v, want SERVFAIL", m)
	}
}

func TestWildcardAnswersFromTheAddressAsked(t *testing.T) {
	if !canShare {
		t.Skip("the system has one loopback address")
	}
	for listen, dests := range map[string][]string{
		"0.0.0.0:0": {"127.0.0.1", "127.0.0.2", "127.8.9.10"},
		":0":        {"127.0.0.1", "127.0.0.3", "::1"},
	} {
		s, err := New(Config{Listen: []string{listen}, View: func() View { return newWorld() }})
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
			c := &dns.Client{Net: "udp", Timeout: 5 * time.Second} // connected: another source is not received
			if r, _, err := c.Exchange(m, to.String()); err != nil || len(r.Answer) != 1 {
				t.Errorf("%s asked by %s: %v %v", listen, d, r, err)
			}
		}
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

func TestObserve(t *testing.T) {
	seen := make(chan Event, 16)
	s := start(t, newWorld(), func(c *Config) { c.Observe = func(e Event) { seen <- e } })
	exchangeUDP(t, s, edns(query1("chat.api.example.", dns.TypeA), 1232, 0, ecs(1, 24, 0, 81, 2, 69)))
	exchangeTCP(t, s, flags(query1("chat.api.example.", dns.TypeA), bitQR))
	want := map[Event]bool{
		{N: 1, Qtype: dns.TypeA, Service: -1, Stale: true, Fast: true}: false,
		{N: 1, Rcode: Dropped, Service: -1, By: TCP}:                   false,
		{N: 1, Qtype: dns.TypeA, Service: -1}:                          false, // the fences
		{N: 1, Qtype: dns.TypeA, Service: -1, By: TCP}:                 false,
	}
	for missing := len(want); missing > 0; {
		e := <-seen
		if e.Dur <= 0 {
			t.Errorf("event %+v has no duration", e)
		}
		e.Dur = 0
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

func TestManyAskAtOnce(t *testing.T) {
	s := start(t, newWorld(), nil)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			c := &dns.Client{Net: "udp", Timeout: 5 * time.Second}
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

func TestStartsOnce(t *testing.T) {
	s := start(t, newWorld(), nil)
	if err := s.Start(t.Context()); err == nil {
		t.Error("a second start succeeded")
	}
	stopped, err := New(Config{Listen: []string{"127.0.0.1:0"}, View: func() View { return nil }})
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
