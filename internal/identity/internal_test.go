package identity_test

import (
	"os"
	"testing"

	"github.com/spillway-lb/spillway/internal/identity"
)

// Certificates of one process trust each other and nothing else, and leave no key on disk.
func TestProcessCertsAreIsolated(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	make2 := func() []*identity.Certs {
		t.Helper()
		certs, err := identity.NewProcessCerts(identity.ID{Role: identity.RoleGateway, Region: "here", Name: "n1"},
			identity.ID{Role: identity.RoleLocal, Region: "here", Zone: "a", Name: "n1"})
		if err != nil {
			t.Fatal(err)
		}
		return certs
	}
	certs, other := make2(), make2()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("files are left: %v %v", left, err)
	}
	all := func(identity.ID) error { return nil }
	seen, serverErr, clientErr := runHandshake(t, certs[1].ServerTLS("x", all), certs[0].ClientTLS("x", all))
	if serverErr != nil || clientErr != nil || seen.Role != identity.RoleGateway {
		t.Errorf("%v: %v, %v", seen, serverErr, clientErr)
	}
	if _, serverErr, clientErr = runHandshake(t, other[1].ServerTLS("x", all), certs[0].ClientTLS("x", all)); serverErr == nil && clientErr == nil {
		t.Error("two processes trust each other")
	}
	if err := certs[0].Reload(); err != nil {
		t.Errorf("reload: %v", err)
	}
}
