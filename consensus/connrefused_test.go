package consensus_test

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/identity"
)

// checkConnRefused connects with a certificate that must be refused, and fails the test if it is admitted.
func checkConnRefused(t *testing.T, addr string, certs *identity.Certs, alpn string) {
	t.Helper()
	cfg := certs.ClientTLS(alpn, nil)
	cfg.VerifyConnection = nil // the refusal must be the node's, not the client's
	conn, err := tls.Dial("tcp", addr, cfg)
	if err != nil {
		return
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Fatalf("%s spoke to %s over %s", addr, certs.ID(), alpn)
	}
}
