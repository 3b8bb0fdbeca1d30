package identity_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/identity"
)

func TestDevCAIsLoadedAgain(t *testing.T) {
	dir := t.TempDir()
	first, err := identity.NewDevCA(dir, domain)
	if err != nil {
		t.Fatal(err)
	}
	again, err := identity.NewDevCA(dir, domain)
	if err != nil {
		t.Fatal(err)
	}
	a, b := node(t, first, global("a")), node(t, again, global("b"))
	if _, err, cerr := shake(t, a.Server("x/1", nil), b.Client("x/1", nil)); err != nil || cerr != nil {
		t.Fatalf("certificates of one authority, loaded twice, do not meet: %v, %v", err, cerr)
	}
	if _, err := identity.NewDevCA(dir, "other.spillway"); err == nil {
		t.Fatal("authority opened for another trust domain")
	}
	if err := os.Remove(filepath.Join(dir, "ca.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := identity.NewDevCA(dir, domain); err == nil {
		t.Fatal("half an authority opened")
	}
}

func TestIssue(t *testing.T) {
	ca, dir := authority(t, domain), t.TempDir()
	f, err := ca.Issue(global("g1"), dir, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{f.Cert, f.Key, f.CA} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want mode 0600", path, st, err)
		}
	}
	if _, err := ca.Issue(global("g1"), dir, time.Hour); err != nil {
		t.Errorf("renewing: %v", err)
	}
	operator := identity.ID{TrustDomain: domain, Role: identity.RoleOperator, Name: "g1"}
	if _, err := ca.Issue(operator, dir, time.Hour); err == nil {
		t.Error("one identity's certificate written over another's")
	}
	if _, err := ca.Issue(identity.ID{TrustDomain: "other", Role: identity.RoleGlobal, Name: "g1"}, dir, time.Hour); err == nil {
		t.Error("certificate issued outside the trust domain")
	}
	if _, err := ca.Issue(identity.ID{TrustDomain: domain, Role: identity.RoleGlobal, Name: "../g"}, dir, time.Hour); err == nil {
		t.Error("certificate issued for a name that climbs out of the directory")
	}
}
