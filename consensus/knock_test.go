package consensus_test

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/identity"
)

// knock tries to get in with a certificate that must not pass, and fails the test if it does.
func knock(t *testing.T, addr string, certs *identity.Certs, alpn string) {
	t.Helper()
	cfg := certs.Client(alpn, nil)
	cfg.VerifyConnection = nil // the refusal must be the node's own
	conn, err := tls.Dial("tcp", addr, cfg)
	if err != nil {
		return
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Fatalf("%s spoke to %s over %s", addr, certs.ID(), alpn)
	}
}
