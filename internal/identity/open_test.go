package identity

import (
	"crypto/tls"
	"errors"
	"testing"
	"time"
)

// TestServerTLSNoClientCert dials without a certificate, once with the right authority and once without.
func TestServerTLSNoClientCert(t *testing.T) {
	ca, err := NewDevCA(t.TempDir(), "a.test")
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewDevCA(t.TempDir(), "a.test")
	if err != nil {
		t.Fatal(err)
	}
	files, err := ca.IssueCert(ID{TrustDomain: "a.test", Role: RoleLocal, Region: "r", Zone: "z", Name: "l1"}, t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := other.IssueCert(ID{TrustDomain: "a.test", Role: RoleLocal, Region: "r", Zone: "z", Name: "l1"}, t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	certs, err := LoadCerts(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", certs.ServerTLSNoClientCert())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			_ = c.(*tls.Conn).Handshake() // what comes of it the other side says
			_ = c.Close()
		}
	}()
	defer func() { _ = l.Close(); <-done }()
	refusal := errors.New("not that one")
	for name, c := range map[string]struct {
		ca     string
		verify func(ID) error
		ok     bool
	}{
		"the right authority": {files.CA, func(id ID) error {
			if id.Role != RoleLocal || id.Name != "l1" {
				t.Errorf("it says that it is %s", id)
			}
			return nil
		}, true},
		"another authority":  {foreign.CA, func(ID) error { return nil }, false},
		"somebody unwelcome": {files.CA, func(ID) error { return refusal }, false},
	} {
		client, err := ClientTLSForCA(c.ca, c.verify)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := tls.Dial("tcp", l.Addr().String(), client)
		if err == nil {
			_ = conn.Close()
		}
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ClientTLSForCA(files.CA+".none", nil); err == nil {
		t.Error("a missing authority was taken")
	}
}
