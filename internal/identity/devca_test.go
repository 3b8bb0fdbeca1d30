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
