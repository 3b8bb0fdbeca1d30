package uplink

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/uplink/uplinkpb"
)

// TestStrangersAreRefused: whoever may not speak is refused, counted at each try, logged once, and never heard.
func TestStrangersAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		parent func(*ParentConfig)
		child  func(t *testing.T, w *planet, c *ChildConfig)
		spoil  func(*Child)
		reason string
	}{
		"a claim beside the certificate": {
			spoil:  func(c *Child) { c.cfg.Path.Zone = "b" },
			reason: `claims to be \"us/b/l2\"`,
		},
		"out of scope": {
			parent: func(c *ParentConfig) {
				c.Scope = func(id identity.ID) error {
					if id.Zone != "b" {
						return errors.New("zone not in the spec")
					}
					return nil
				}
			},
			reason: "zone not in the spec",
		},
		"wrong role": {
			parent: func(c *ParentConfig) { c.ChildRole = identity.RoleGateway },
			reason: "it is a local where a gateway is expected",
		},
		"foreign authority": {
			child: func(t *testing.T, w *planet, c *ChildConfig) {
				ca, err := identity.NewDevCA(w.dir+"/foreign", "test.example")
				if err != nil {
					t.Fatal(err)
				}
				id := local("a", "l2")
				id.TrustDomain = "test.example"
				foreign, err := ca.Issue(id, w.dir+"/foreign", time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				// It trusts our authority too, so that it is our parent who must refuse.
				foreign.CA = bothAuthorities(t, w.dir+"/ca.pem", foreign.CA)
				if c.Certs, err = identity.Load(foreign, nil); err != nil {
					t.Fatal(err)
				}
			},
			reason: "unknown authority",
		},
	} {
		t.Run(name, func(t *testing.T) {
			onPlanet(t, func(t *testing.T, w *planet) {
				g := w.parent(1, w.host(1), c.parent)
				child := w.child(2, func(cfg *ChildConfig) {
					cfg.Log = nil
					if c.child != nil {
						c.child(t, w, cfg)
					}
				}, 1)
				if c.spoil != nil {
					c.spoil(child)
				}
				w.start(child)
				time.Sleep(30 * time.Second)
				if g.Refused() < 2 || g.Refused() > 60 || w.log.count("uplink peer refused") != 1 || w.log.count(c.reason) != 1 {
					t.Errorf("refused %d times, logged:\n%s", g.Refused(), strings.Join(w.log.lines, ""))
				}
				if g.arrivals() > 0 || len(g.Children()) > 0 || child.Sessions()[0].Connected || child.Sessions()[0].Err == nil {
					t.Error("heard")
				}
				w.stop(child, g)
			})
		})
	}
}

func bothAuthorities(t *testing.T, ours, theirs string) string {
	t.Helper()
	var both []byte
	for _, name := range []string{ours, theirs} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, b...)
	}
	name := theirs + ".both"
	if err := os.WriteFile(name, both, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestChildRefusesParents: a child does not speak to a gateway of another region.
func TestChildRefusesParents(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		certs := w.certs(identity.ID{Role: identity.RoleGateway, Region: "eu", Name: "g1"})
		g := w.parentWith(certs, w.host(1), nil)
		c := w.start(w.child(2, nil, 1))
		time.Sleep(10 * time.Second)
		if s := c.Sessions()[0]; s.Connected || s.Err == nil || !strings.Contains(s.Err.Error(), "it serves region eu, not us") || g.arrivals() > 0 {
			t.Fatalf("%+v", s)
		}
		w.stop(c, g)
	})
}

// stranger is a peer with a proper certificate that speaks QUIC by hand.
func (w *planet) stranger(n int, hello *uplinkpb.Hello) *quic.Conn {
	w.t.Helper()
	conn := w.redial(n, "l2")(hello)
	if conn == nil {
		w.t.Fatal("no connection")
	}
	return conn
}

// redial makes such a peer of a name, that may come again and again; it has no connection where it is turned away.
func (w *planet) redial(n int, name string) func(hello *uplinkpb.Hello) *quic.Conn {
	tr := &quic.Transport{Conn: w.host(n)}
	w.t.Cleanup(func() { tr.Close() })
	certs := w.certs(local("a", name))
	return func(hello *uplinkpb.Hello) *quic.Conn {
		conn, err := tr.Dial(context.Background(), &net.UDPAddr{IP: net.IPv4(1, 0, 0, 1).To4(), Port: 7}, certs.Client(ALPN, nil), quicConfig(8))
		if err != nil {
			return nil
		}
		control, err := conn.OpenStream()
		if err != nil {
			return nil
		}
		if err := writeFrame(control, hello); err != nil {
			return nil
		}
		var welcome uplinkpb.Welcome
		_ = readFrame(control, &welcome) // some are refused instead
		return conn
	}
}

// TestRubbish: each of these ends the session, is counted and logged once.
func TestRubbish(t *testing.T) {
	honest := helloOf(l2, 5, "")
	delta := func(s capacity.Summary) []byte {
		d := capacity.Diff(&capacity.Summary{}, &s)
		b, err := capacity.EncodeDelta(&d)
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte{kindDelta}, b...)
	}
	stream := func(b []byte) func(*quic.Conn) {
		return func(c *quic.Conn) {
			if st, err := c.OpenStream(); err == nil {
				st.Write(b)
				st.Close()
			}
		}
	}
	for name, c := range map[string]struct {
		hello *uplinkpb.Hello
		do    func(*quic.Conn)
		code  quic.ApplicationErrorCode
	}{
		"datagram": {honest, func(c *quic.Conn) { c.SendDatagram([]byte{kindDelta, 0xff, 0xff}) }, codeRubbish},
		"another's path": {honest, func(c *quic.Conn) {
			c.SendDatagram(delta(capacity.Summary{Path: capacity.Path{Region: "eu"}, Boot: 5, Seq: 1}))
		}, codeRubbish},
		"an earlier boot":   {honest, func(c *quic.Conn) { c.SendDatagram(delta(capacity.Summary{Path: l2, Boot: 4, Seq: 1})) }, codeRubbish},
		"snapshot":          {honest, stream([]byte{kindSnapshot, 0xff}), codeRubbish},
		"too long snapshot": {honest, stream(append([]byte{kindSnapshot}, make([]byte, capacity.MaxEncoded+1)...)), codeRubbish},
		"empty stream":      {honest, stream(nil), codeRubbish},
		"future":            {&uplinkpb.Hello{Version: 9, MinVersion: 9, Region: "us", Zone: "a", Instance: "l2"}, func(*quic.Conn) {}, codeVersion},
	} {
		t.Run(name, func(t *testing.T) {
			onPlanet(t, func(t *testing.T, w *planet) {
				g := w.parent(1, w.host(1), nil)
				conn := w.stranger(2, c.hello)
				c.do(conn)
				<-conn.Context().Done()
				var app *quic.ApplicationError
				if err := context.Cause(conn.Context()); !errors.As(err, &app) || !app.Remote || app.ErrorCode != c.code {
					t.Error(err)
				}
				time.Sleep(time.Second)
				if g.Refused() != 1 || w.log.count("uplink peer refused") != 1 || g.arrivals() > 0 || len(g.Children()) > 0 {
					t.Errorf("refused %d, arrived %d", g.Refused(), g.arrivals())
				}
				w.stop(g)
			})
		})
	}
}

// TestUnknownKindsPass: what a newer version adds does not end a session.
func TestUnknownKindsPass(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		g := w.parent(1, w.host(1), nil)
		conn := w.stranger(2, &uplinkpb.Hello{Version: 9, MinVersion: 1, Region: "us", Zone: "a", Instance: "l2", Boot: 5})
		conn.SendDatagram([]byte{200, 1, 2})
		if st, err := conn.OpenStream(); err == nil {
			st.Write([]byte{200, 1})
			st.Close()
		}
		time.Sleep(time.Second)
		if len(g.Children()) != 1 || g.Refused() != 0 {
			t.Errorf("%d children, %d refused", len(g.Children()), g.Refused())
		}
		conn.CloseWithError(0, "")
		w.stop(g)
	})
}

// TestFull: a parent takes no more than it may, and says so; a replacement is not one more.
func TestFull(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		g := w.parent(1, w.host(1), func(c *ParentConfig) { c.MaxChildren = 1 })
		first := w.start(w.child(2, nil, 1))
		time.Sleep(time.Second)
		second := w.start(w.child(3, nil, 1))
		time.Sleep(10 * time.Second)
		var app *quic.ApplicationError
		if s := second.Sessions()[0]; s.Connected || !errors.As(s.Err, &app) || app.ErrorCode != codeFull || !first.Sessions()[0].Connected {
			t.Fatalf("%+v", s)
		}
		w.stop(first, second, g)
	})
}

// TestTwoOfOneName: two instances that share a certificate take turns slowly; the parent is not stormed.
func TestTwoOfOneName(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		g := w.parent(1, w.host(1), nil)
		certs := w.certs(local("a", "l2"))
		same := func(c *ChildConfig) { c.Certs = certs }
		x, y := w.start(w.child(20, same, 1)), w.start(w.child(21, same, 1))
		time.Sleep(time.Minute)
		if n := w.log.count("uplink child connected"); n > 40 || len(g.Children()) != 1 {
			t.Errorf("%d sessions in a minute, %d now", n, len(g.Children()))
		}
		w.stop(x, y, g)
	})
}

func TestConfigIsChecked(t *testing.T) {
	dir := t.TempDir()
	ca, err := identity.NewDevCA(dir, "test.example")
	if err != nil {
		t.Fatal(err)
	}
	id := local("a", "l1")
	id.TrustDomain = "test.example"
	certs := issue(t, ca, id, dir)
	if _, err := NewChild(ChildConfig{Certs: certs}); err == nil {
		t.Error("a child without a summary")
	}
	_, err = NewChild(ChildConfig{Certs: certs, Summary: clock(1), Path: capacity.Path{Region: "eu"}})
	if err == nil || !strings.Contains(err.Error(), `configured as "eu" but its certificate says "us/a/l1"`) {
		t.Error(err)
	}
	global := identity.ID{TrustDomain: "test.example", Role: identity.RoleGlobal, Name: "n1"}
	globals := issue(t, ca, global, dir)
	if _, err := NewChild(ChildConfig{Certs: globals, Summary: clock(1)}); err == nil {
		t.Error("a global node reports to nobody")
	}
	taken, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, err = NewParent(ParentConfig{Certs: globals, Listen: taken.LocalAddr().String(), OnSummary: func(identity.ID, *capacity.Summary) {}})
	if err == nil || !strings.Contains(err.Error(), taken.LocalAddr().String()) || !strings.Contains(err.Error(), "global/n1 wants UDP") {
		t.Error(err)
	}
}

// TestLoopback runs over real sockets: names are resolved, directives flow, a stop is known at once.
func TestLoopback(t *testing.T) {
	dir := t.TempDir()
	ca, err := identity.NewDevCA(dir, "test.example")
	if err != nil {
		t.Fatal(err)
	}
	as := func(id identity.ID) *identity.Certs {
		id.TrustDomain = "test.example"
		return issue(t, ca, id, dir+"/"+id.Name)
	}
	heard, lost, told := make(chan *capacity.Summary, 1000), make(chan capacity.Path, 1), make(chan *Directive, 100)
	p, err := NewParent(ParentConfig{
		Listen: "localhost:0", Certs: as(gateway("g1")), ChildRole: identity.RoleLocal,
		OnSummary: func(_ identity.ID, s *capacity.Summary) { heard <- s },
		OnLost:    func(_ identity.ID, path capacity.Path) { lost <- path },
		Directive: func(capacity.Path) *Directive { return &Directive{Index: 3, Spec: bytes.Repeat([]byte("x"), 500_000)} },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := p.Start(ctx); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(p.Addr().String())
	c, err := NewChild(ChildConfig{
		Certs: as(local("a", "l2")), Parents: []string{"localhost:" + port}, ParentRole: identity.RoleGateway,
		Interval: 20 * time.Millisecond, Summary: clock(40), Log: slog.New(slog.DiscardHandler),
		OnDirective: func(_ identity.ID, d *Directive) { told <- d },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(ctx); err == nil {
		t.Error("started twice")
	}
	for range 20 {
		if s := <-heard; s.Path != l2 || len(s.Models) != 40 {
			t.Fatalf("%s with %d models", s.Path, len(s.Models))
		}
	}
	if d := <-told; d.Index != 3 || len(d.Spec) != 500_000 {
		t.Fatal("directive")
	}
	if err := c.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case path := <-lost:
		if path != l2 {
			t.Fatal(path)
		}
	case <-ctx.Done():
		t.Fatal("the stop is not known")
	}
	if err := p.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}
