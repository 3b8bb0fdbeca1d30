package identity_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/identity"
)

func TestDevCAIsReloaded(t *testing.T) {
	dir := t.TempDir()
	first, err := identity.NewDevCA(dir, testTrustDomain)
	if err != nil {
		t.Fatal(err)
	}
	again, err := identity.NewDevCA(dir, testTrustDomain)
	if err != nil {
		t.Fatal(err)
	}
	a, b := newNodeCerts(t, first, globalID("a")), newNodeCerts(t, again, globalID("b"))
	if _, err, cerr := runHandshake(t, a.ServerTLS("x/1", nil), b.ClientTLS("x/1", nil)); err != nil || cerr != nil {
		t.Fatalf("certificates of one authority, loaded twice, do not meet: %v, %v", err, cerr)
	}
	if _, err := identity.NewDevCA(dir, "other.spillway"); err == nil {
		t.Fatal("authority opened for another trust domain")
	}
	if err := os.Remove(filepath.Join(dir, "ca.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := identity.NewDevCA(dir, testTrustDomain); err == nil {
		t.Fatal("half an authority opened")
	}
}

func TestIssueCert(t *testing.T) {
	ca, dir := newTestCA(t, testTrustDomain), t.TempDir()
	f, err := ca.IssueCert(globalID("g1"), dir, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{f.Cert, f.Key, f.CA} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want mode 0600", path, st, err)
		}
	}
	if _, err := ca.IssueCert(globalID("g1"), dir, time.Hour); err != nil {
		t.Errorf("renewing: %v", err)
	}
	operator := identity.ID{TrustDomain: testTrustDomain, Role: identity.RoleOperator, Name: "g1"}
	if _, err := ca.IssueCert(operator, dir, time.Hour); err == nil {
		t.Error("one identity's certificate written over another's")
	}
	if _, err := ca.IssueCert(identity.ID{TrustDomain: "other", Role: identity.RoleGlobal, Name: "g1"}, dir, time.Hour); err == nil {
		t.Error("certificate issued outside the trust domain")
	}
	if _, err := ca.IssueCert(identity.ID{TrustDomain: testTrustDomain, Role: identity.RoleGlobal, Name: "../g"}, dir, time.Hour); err == nil {
		t.Error("certificate issued for a name that climbs out of the directory")
	}
}

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
