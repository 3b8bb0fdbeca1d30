package identity_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/identity"
)

// served is the server's side of one handshake.
func served(t *testing.T, server, client *tls.Config) tls.ConnectionState {
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

// TestConnectionsShareWhatPeersShow: a connection must not hold a reading of its own of a certificate that others hold.
func TestConnectionsShareWhatPeersShow(t *testing.T) {
	ca := authority(t, domain)
	cfg := node(t, ca, global("g1")).Server("x/1", nil)
	one, other := node(t, ca, global("g2")).Client("x/1", nil), node(t, ca, global("g3")).Client("x/1", nil)
	first, second, third := served(t, cfg, one), served(t, cfg, one), served(t, cfg, other)
	if first.PeerCertificates[0] != second.PeerCertificates[0] || first.VerifiedChains[0][0] != second.VerifiedChains[0][0] {
		t.Error("two connections of one peer hold two readings of its certificate")
	}
	if id, err := identity.PeerID(third); err != nil || id != global("g3") {
		t.Errorf("another peer is taken for %v (%v)", id, err)
	}
}

// TestSharedConfigurationFollowsTheFiles: connections share a configuration until the files change, and not after that.
func TestSharedConfigurationFollowsTheFiles(t *testing.T) {
	ca := authority(t, domain)
	dir := t.TempDir()
	files, err := ca.Issue(global("g1"), dir, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := identity.Load(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg, peer := srv.Server("x/1", nil), node(t, ca, global("g2")).Client("x/1", nil)
	var shown []*x509.Certificate
	peer.VerifyPeerCertificate = func(raw [][]byte, _ [][]*x509.Certificate) error {
		c, err := x509.ParseCertificate(raw[0])
		shown = append(shown, c)
		return err
	}
	served(t, cfg, peer)
	before, _ := cfg.GetConfigForClient(nil)
	if again, _ := cfg.GetConfigForClient(nil); again != before {
		t.Error("each connection has a configuration of its own")
	}
	if _, err := ca.Issue(global("g1"), dir, 2*time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := srv.Reload(); err != nil {
		t.Fatal(err)
	}
	served(t, cfg, peer)
	if shown[0].Equal(shown[1]) {
		t.Error("a connection after the reload was shown the old certificate")
	}
}
