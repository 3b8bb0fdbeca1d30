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

// TestUnauthorizedPeersAreRefused: an unauthorized peer is refused, counted at each try, logged once, and none of its
// summaries is used.
func TestUnauthorizedPeersAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		parent func(*ParentConfig)
		child  func(t *testing.T, w *testNetwork, c *ChildConfig)
		spoil  func(*Child)
		reason string
	}{
		"a claim that differs from the certificate": {
			spoil:  func(c *Child) { c.cfg.Path.Zone = "b" },
			reason: `claims to be \"us/b/l2\"`,
		},
		"out of scope": {
			parent: func(c *ParentConfig) {
				c.CheckScope = func(id identity.ID) error {
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
			child: func(t *testing.T, w *testNetwork, c *ChildConfig) {
				ca, err := identity.NewDevCA(w.dir+"/foreign", "test.example")
				if err != nil {
					t.Fatal(err)
				}
				id := localID("a", "l2")
				id.TrustDomain = "test.example"
				foreign, err := ca.IssueCert(id, w.dir+"/foreign", time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				// It trusts our authority too, so that it is our parent who must refuse.
				foreign.CA = concatAuthorities(t, w.dir+"/ca.pem", foreign.CA)
				if c.Certs, err = identity.LoadCerts(foreign, nil); err != nil {
					t.Fatal(err)
				}
			},
			reason: "unknown authority",
		},
	} {
		t.Run(name, func(t *testing.T) {
			runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
				g := w.startParent(1, w.attachHost(1), c.parent)
				child := w.newChild(2, func(cfg *ChildConfig) {
					cfg.Log = nil
					if c.child != nil {
						c.child(t, w, cfg)
					}
				}, 1)
				if c.spoil != nil {
					c.spoil(child)
				}
				w.startChild(child)
				time.Sleep(30 * time.Second)
				if g.RefusedCount() < 2 || g.RefusedCount() > 60 || w.log.countLines("uplink peer refused") != 1 || w.log.countLines(c.reason) != 1 {
					t.Errorf("refused %d times, logged:\n%s", g.RefusedCount(), strings.Join(w.log.lines, ""))
				}
				if g.countArrivals() > 0 || len(g.Children()) > 0 || child.Sessions()[0].Connected || child.Sessions()[0].Err == nil {
					t.Error("heard")
				}
				w.stopAll(child, g)
			})
		})
	}
}

func concatAuthorities(t *testing.T, ours, theirs string) string {
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

// TestChildRefusesGatewayOfOtherRegion: a child opens no session to a gateway of another region.
func TestChildRefusesGatewayOfOtherRegion(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		certs := w.newCerts(identity.ID{Role: identity.RoleGateway, Region: "eu", Name: "g1"})
		g := w.startParentWith(certs, w.attachHost(1), nil)
		c := w.startChild(w.newChild(2, nil, 1))
		time.Sleep(10 * time.Second)
		if s := c.Sessions()[0]; s.Connected || s.Err == nil || !strings.Contains(s.Err.Error(), "it serves region eu, not us") || g.countArrivals() > 0 {
			t.Fatalf("%+v", s)
		}
		w.stopAll(c, g)
	})
}

// dialStranger opens a connection of a peer with a valid certificate, as raw QUIC.
func (w *testNetwork) dialStranger(n int, hello *uplinkpb.Hello) *quic.Conn {
	w.t.Helper()
	conn := w.newStrangerDialer(n, "l2")(hello)
	if conn == nil {
		w.t.Fatal("no connection")
	}
	return conn
}

// newStrangerDialer returns a function that connects as such a peer with a given name, any number of times; it
// returns no connection when it is rejected.
func (w *testNetwork) newStrangerDialer(n int, name string) func(hello *uplinkpb.Hello) *quic.Conn {
	tr := &quic.Transport{Conn: w.attachHost(n)}
	w.t.Cleanup(func() { tr.Close() })
	certs := w.newCerts(localID("a", name))
	return func(hello *uplinkpb.Hello) *quic.Conn {
		conn, err := tr.Dial(context.Background(), &net.UDPAddr{IP: net.IPv4(1, 0, 0, 1).To4(), Port: 7}, certs.ClientTLS(ALPN, nil), newQUICConfig(8))
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

// TestMalformedMessagesEndSession: each of these ends the session, is counted and logged once.
func TestMalformedMessagesEndSession(t *testing.T) {
	honest := newHello(pathL2, 5, "")
	delta := func(s capacity.Summary) []byte {
		d := capacity.DiffSummaries(&capacity.Summary{}, &s)
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
		"datagram": {honest, func(c *quic.Conn) { c.SendDatagram([]byte{kindDelta, 0xff, 0xff}) }, codeMalformed},
		"another's path": {honest, func(c *quic.Conn) {
			c.SendDatagram(delta(capacity.Summary{Path: capacity.Path{Region: "eu"}, Boot: 5, Seq: 1}))
		}, codeMalformed},
		"an earlier boot":   {honest, func(c *quic.Conn) { c.SendDatagram(delta(capacity.Summary{Path: pathL2, Boot: 4, Seq: 1})) }, codeMalformed},
		"snapshot":          {honest, stream([]byte{kindSnapshot, 0xff}), codeMalformed},
		"too long snapshot": {honest, stream(append([]byte{kindSnapshot}, make([]byte, capacity.MaxEncoded+1)...)), codeMalformed},
		"empty stream":      {honest, stream(nil), codeMalformed},
		"future":            {&uplinkpb.Hello{Version: 9, MinVersion: 9, Region: "us", Zone: "a", Instance: "l2"}, func(*quic.Conn) {}, codeVersion},
	} {
		t.Run(name, func(t *testing.T) {
			runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
				g := w.startParent(1, w.attachHost(1), nil)
				conn := w.dialStranger(2, c.hello)
				c.do(conn)
				<-conn.Context().Done()
				var app *quic.ApplicationError
				if err := context.Cause(conn.Context()); !errors.As(err, &app) || !app.Remote || app.ErrorCode != c.code {
					t.Error(err)
				}
				time.Sleep(time.Second)
				if g.RefusedCount() != 1 || w.log.countLines("uplink peer refused") != 1 || g.countArrivals() > 0 || len(g.Children()) > 0 {
					t.Errorf("refused %d, arrived %d", g.RefusedCount(), g.countArrivals())
				}
				w.stopAll(g)
			})
		})
	}
}

// TestUnknownMessageKindsAreSkipped: message kinds of a newer version do not end a session.
func TestUnknownMessageKindsAreSkipped(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		g := w.startParent(1, w.attachHost(1), nil)
		conn := w.dialStranger(2, &uplinkpb.Hello{Version: 9, MinVersion: 1, Region: "us", Zone: "a", Instance: "l2", Boot: 5})
		conn.SendDatagram([]byte{200, 1, 2})
		if st, err := conn.OpenStream(); err == nil {
			st.Write([]byte{200, 1})
			st.Close()
		}
		time.Sleep(time.Second)
		if len(g.Children()) != 1 || g.RefusedCount() != 0 {
			t.Errorf("%d children, %d refused", len(g.Children()), g.RefusedCount())
		}
		conn.CloseWithError(0, "")
		w.stopAll(g)
	})
}

// TestParentRefusesChildrenBeyondLimit: a parent accepts no more children than its limit, with a reason; a
// replacement does not count as another.
func TestParentRefusesChildrenBeyondLimit(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		g := w.startParent(1, w.attachHost(1), func(c *ParentConfig) { c.MaxChildren = 1 })
		first := w.startChild(w.newChild(2, nil, 1))
		time.Sleep(time.Second)
		second := w.startChild(w.newChild(3, nil, 1))
		time.Sleep(10 * time.Second)
		var app *quic.ApplicationError
		if s := second.Sessions()[0]; s.Connected || !errors.As(s.Err, &app) || app.ErrorCode != codeFull || !first.Sessions()[0].Connected {
			t.Fatalf("%+v", s)
		}
		w.stopAll(first, second, g)
	})
}

// TestDuplicateInstancesBackOff: two instances that share a certificate alternate slowly and do not flood the parent.
func TestDuplicateInstancesBackOff(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		g := w.startParent(1, w.attachHost(1), nil)
		certs := w.newCerts(localID("a", "l2"))
		same := func(c *ChildConfig) { c.Certs = certs }
		x, y := w.startChild(w.newChild(20, same, 1)), w.startChild(w.newChild(21, same, 1))
		time.Sleep(time.Minute)
		if n := w.log.countLines("uplink child connected"); n > 40 || len(g.Children()) != 1 {
			t.Errorf("%d sessions in a minute, %d now", n, len(g.Children()))
		}
		w.stopAll(x, y, g)
	})
}

func TestInvalidConfigIsRefused(t *testing.T) {
	dir := t.TempDir()
	ca, err := identity.NewDevCA(dir, "test.example")
	if err != nil {
		t.Fatal(err)
	}
	id := localID("a", "l1")
	id.TrustDomain = "test.example"
	certs := issueCerts(t, ca, id, dir)
	if _, err := NewChild(ChildConfig{Certs: certs}); err == nil {
		t.Error("a child without a summary")
	}
	_, err = NewChild(ChildConfig{Certs: certs, BuildSummary: timestampedModels(1), Path: capacity.Path{Region: "eu"}})
	if err == nil || !strings.Contains(err.Error(), `configured as "eu" but its certificate names "us/a/l1"`) {
		t.Error(err)
	}
	global := identity.ID{TrustDomain: "test.example", Role: identity.RoleGlobal, Name: "n1"}
	globals := issueCerts(t, ca, global, dir)
	if _, err := NewChild(ChildConfig{Certs: globals, BuildSummary: timestampedModels(1)}); err == nil {
		t.Error("a global node has no parent")
	}
	taken, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, err = NewParent(ParentConfig{Certs: globals, Listen: taken.LocalAddr().String(), OnSummary: func(identity.ID, *capacity.Summary) {}})
	if err == nil || !strings.Contains(err.Error(), taken.LocalAddr().String()) || !strings.Contains(err.Error(), "global/n1 cannot listen on UDP") {
		t.Error(err)
	}
}

// TestSessionOverLoopbackSockets runs over real sockets: names are resolved, directives arrive, and a stop is noticed
// at once.
func TestSessionOverLoopbackSockets(t *testing.T) {
	dir := t.TempDir()
	ca, err := identity.NewDevCA(dir, "test.example")
	if err != nil {
		t.Fatal(err)
	}
	as := func(id identity.ID) *identity.Certs {
		id.TrustDomain = "test.example"
		return issueCerts(t, ca, id, dir+"/"+id.Name)
	}
	received, lost, directives := make(chan *capacity.Summary, 1000), make(chan capacity.Path, 1), make(chan *Directive, 100)
	p, err := NewParent(ParentConfig{
		Listen: "localhost:0", Certs: as(gatewayID("g1")), ChildRole: identity.RoleLocal,
		OnSummary:      func(_ identity.ID, s *capacity.Summary) { received <- s },
		OnLost:         func(_ identity.ID, path capacity.Path) { lost <- path },
		BuildDirective: func(capacity.Path) *Directive { return &Directive{Index: 3, Spec: bytes.Repeat([]byte("x"), 500_000)} },
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
		Certs: as(localID("a", "l2")), Parents: []string{"localhost:" + port}, ParentRole: identity.RoleGateway,
		Interval: 20 * time.Millisecond, BuildSummary: timestampedModels(40), Log: slog.New(slog.DiscardHandler),
		OnDirective: func(_ identity.ID, d *Directive) { directives <- d },
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
		if s := <-received; s.Path != pathL2 || len(s.Models) != 40 {
			t.Fatalf("%s with %d models", s.Path, len(s.Models))
		}
	}
	if d := <-directives; d.Index != 3 || len(d.Spec) != 500_000 {
		t.Fatal("directive")
	}
	if err := c.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case path := <-lost:
		if path != pathL2 {
			t.Fatal(path)
		}
	case <-ctx.Done():
		t.Fatal("the stop is not known")
	}
	if err := p.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}
