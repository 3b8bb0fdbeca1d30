package identity_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/identity"
)

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
