package identity_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/identity"
)

const testTrustDomain = "test.spillway"

func globalID(name string) identity.ID {
	return identity.ID{TrustDomain: testTrustDomain, Role: identity.RoleGlobal, Name: name}
}

func newTestCA(t *testing.T, dom string) *identity.DevCA {
	t.Helper()
	ca, err := identity.NewDevCA(t.TempDir(), dom)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func newNodeCerts(t *testing.T, ca *identity.DevCA, id identity.ID) *identity.Certs {
	t.Helper()
	f, err := ca.IssueCert(id, t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c, err := identity.LoadCerts(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// runHandshake runs one handshake and gives both sides' errors and the identity the server saw.
func runHandshake(t *testing.T, server, client *tls.Config) (seen identity.ID, serverErr, clientErr error) {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	s, c := tls.Server(a, server), tls.Client(b, client)
	done := make(chan error, 1)
	go func() {
		err := c.Handshake()
		if err == nil {
			_, err = c.Read(make([]byte, 1)) // TLS 1.3: a client learns of a refusal when it reads
		}
		b.Close()
		done <- err
	}()
	if serverErr = s.Handshake(); serverErr == nil {
		seen, serverErr = identity.PeerID(s.ConnectionState())
		_, _ = s.Write([]byte{1})
	}
	a.Close()
	return seen, serverErr, <-done
}

func TestHandshakeVerifiesBothSides(t *testing.T) {
	ca, foreign := newTestCA(t, testTrustDomain), newTestCA(t, testTrustDomain)
	srv := newNodeCerts(t, ca, globalID("g1"))
	gateway := identity.ID{TrustDomain: testTrustDomain, Role: identity.RoleGateway, Region: "eu", Name: "g"}
	onlyGlobal := func(id identity.ID) error {
		if id.Role != identity.RoleGlobal {
			return errors.New("only global nodes")
		}
		return nil
	}
	for name, c := range map[string]struct {
		client  *identity.Certs
		alpn    string
		refused string // by the server
	}{
		"right":              {newNodeCerts(t, ca, globalID("g2")), "x/1", ""},
		"wrong role":         {newNodeCerts(t, ca, gateway), "x/1", "only global nodes"},
		"foreign authority":  {newNodeCerts(t, foreign, globalID("g2")), "x/1", "unknown authority"},
		"other protocol":     {newNodeCerts(t, ca, globalID("g2")), "y/1", "protocol"},
		"no protocol at all": {newNodeCerts(t, ca, globalID("g2")), "", "does not speak"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := c.client.ClientTLS(c.alpn, nil)
			if name == "foreign authority" {
				cfg.VerifyConnection = nil // the server must refuse by itself
			}
			seen, err, clientErr := runHandshake(t, srv.ServerTLS("x/1", onlyGlobal), cfg)
			if c.refused == "" {
				if err != nil || clientErr != nil || seen != c.client.ID() {
					t.Fatalf("server saw %v, %v; client %v", seen, err, clientErr)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.refused) || clientErr == nil {
				t.Fatalf("server error %v, client error %v; want a refusal with %q on both sides", err, clientErr, c.refused)
			}
		})
	}
}

func TestClientRefusesServer(t *testing.T) {
	ca, foreign := newTestCA(t, testTrustDomain), newTestCA(t, testTrustDomain)
	client := newNodeCerts(t, ca, globalID("g2"))
	for name, c := range map[string]struct {
		server  *identity.Certs
		verify  func(identity.ID) error
		refused string
	}{
		"foreign authority": {newNodeCerts(t, foreign, globalID("g1")), nil, "unknown authority"},
		"wrong name":        {newNodeCerts(t, ca, globalID("g1")), func(identity.ID) error { return errors.New("want g3") }, "want g3"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := runHandshake(t, c.server.ServerTLS("x/1", nil), client.ClientTLS("x/1", c.verify))
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Fatalf("client error %v, want %q", err, c.refused)
			}
		})
	}
}

func TestOtherTrustDomainRefusedUnderSharedAuthorities(t *testing.T) {
	one, two := newTestCA(t, testTrustDomain), newTestCA(t, "other.spillway")
	mine, err := one.IssueCert(globalID("g1"), t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := two.IssueCert(identity.ID{TrustDomain: "other.spillway", Role: identity.RoleGlobal, Name: "g2"}, t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	both := t.TempDir() + "/both.pem"
	a, _ := os.ReadFile(mine.CA)
	b, _ := os.ReadFile(theirs.CA)
	if err := os.WriteFile(both, append(a, b...), 0o600); err != nil {
		t.Fatal(err)
	}
	mine.CA, theirs.CA = both, both
	srv, err := identity.LoadCerts(mine, nil)
	if err != nil {
		t.Fatal(err)
	}
	cli, err := identity.LoadCerts(theirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg := cli.ClientTLS("x/1", nil)
	cfg.VerifyConnection = nil
	if _, err, _ := runHandshake(t, srv.ServerTLS("x/1", nil), cfg); err == nil || !strings.Contains(err.Error(), "not of trust domain") {
		t.Fatalf("server error %v, want not of trust domain", err)
	}
}

// serverConnState is the server's side of one handshake.
func serverConnState(t *testing.T, server, client *tls.Config) tls.ConnectionState {
	t.Helper()
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	s, c := tls.Server(a, server), tls.Client(b, client)
	done := make(chan error, 1)
	go func() { done <- c.Handshake() }()
	if err := s.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return s.ConnectionState()
}

// TestConnectionsShareParsedCerts: a connection must not hold a reading of its own of a certificate that others hold.
func TestConnectionsShareParsedCerts(t *testing.T) {
	ca := newTestCA(t, testTrustDomain)
	cfg := newNodeCerts(t, ca, globalID("g1")).ServerTLS("x/1", nil)
	one, other := newNodeCerts(t, ca, globalID("g2")).ClientTLS("x/1", nil), newNodeCerts(t, ca, globalID("g3")).ClientTLS("x/1", nil)
	first, second, third := serverConnState(t, cfg, one), serverConnState(t, cfg, one), serverConnState(t, cfg, other)
	if first.PeerCertificates[0] != second.PeerCertificates[0] || first.VerifiedChains[0][0] != second.VerifiedChains[0][0] {
		t.Error("two connections of one peer hold two readings of its certificate")
	}
	if id, err := identity.PeerID(third); err != nil || id != globalID("g3") {
		t.Errorf("another peer is taken for %v (%v)", id, err)
	}
}

// TestSharedTLSConfigFollowsFiles: connections share a configuration until the files change, and not after that.
func TestSharedTLSConfigFollowsFiles(t *testing.T) {
	ca := newTestCA(t, testTrustDomain)
	dir := t.TempDir()
	files, err := ca.IssueCert(globalID("g1"), dir, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := identity.LoadCerts(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg, peer := srv.ServerTLS("x/1", nil), newNodeCerts(t, ca, globalID("g2")).ClientTLS("x/1", nil)
	var shown []*x509.Certificate
	peer.VerifyPeerCertificate = func(raw [][]byte, _ [][]*x509.Certificate) error {
		c, err := x509.ParseCertificate(raw[0])
		shown = append(shown, c)
		return err
	}
	serverConnState(t, cfg, peer)
	before, _ := cfg.GetConfigForClient(nil)
	if again, _ := cfg.GetConfigForClient(nil); again != before {
		t.Error("each connection has a configuration of its own")
	}
	if _, err := ca.IssueCert(globalID("g1"), dir, 2*time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := srv.Reload(); err != nil {
		t.Fatal(err)
	}
	serverConnState(t, cfg, peer)
	if shown[0].Equal(shown[1]) {
		t.Error("a connection after the reload was shown the old certificate")
	}
}
