package identity_test

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/identity"
)

const domain = "test.spillway"

func global(name string) identity.ID {
	return identity.ID{TrustDomain: domain, Role: identity.RoleGlobal, Name: name}
}

func authority(t *testing.T, dom string) *identity.DevCA {
	t.Helper()
	ca, err := identity.NewDevCA(t.TempDir(), dom)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func node(t *testing.T, ca *identity.DevCA, id identity.ID) *identity.Certs {
	t.Helper()
	f, err := ca.Issue(id, t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c, err := identity.Load(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// shake runs one handshake and gives both sides' errors and the identity the server saw.
func shake(t *testing.T, server, client *tls.Config) (seen identity.ID, serverErr, clientErr error) {
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

func TestHandshake(t *testing.T) {
	ca, foreign := authority(t, domain), authority(t, domain)
	srv := node(t, ca, global("g1"))
	gateway := identity.ID{TrustDomain: domain, Role: identity.RoleGateway, Region: "eu", Name: "g"}
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
		"right":              {node(t, ca, global("g2")), "x/1", ""},
		"wrong role":         {node(t, ca, gateway), "x/1", "only global nodes"},
		"foreign authority":  {node(t, foreign, global("g2")), "x/1", "unknown authority"},
		"other protocol":     {node(t, ca, global("g2")), "y/1", "protocol"},
		"no protocol at all": {node(t, ca, global("g2")), "", "does not speak"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := c.client.Client(c.alpn, nil)
			if name == "foreign authority" {
				cfg.VerifyConnection = nil // the server must refuse by itself
			}
			seen, err, clientErr := shake(t, srv.Server("x/1", onlyGlobal), cfg)
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
	ca, foreign := authority(t, domain), authority(t, domain)
	client := node(t, ca, global("g2"))
	for name, c := range map[string]struct {
		server  *identity.Certs
		verify  func(identity.ID) error
		refused string
	}{
		"foreign authority": {node(t, foreign, global("g1")), nil, "unknown authority"},
		"wrong name":        {node(t, ca, global("g1")), func(identity.ID) error { return errors.New("want g3") }, "want g3"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := shake(t, c.server.Server("x/1", nil), client.Client("x/1", c.verify))
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Fatalf("client error %v, want %q", err, c.refused)
			}
		})
	}
}

func TestOtherTrustDomainRefusedUnderSharedAuthorities(t *testing.T) {
	one, two := authority(t, domain), authority(t, "other.spillway")
	mine, err := one.Issue(global("g1"), t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := two.Issue(identity.ID{TrustDomain: "other.spillway", Role: identity.RoleGlobal, Name: "g2"}, t.TempDir(), time.Hour)
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
	srv, err := identity.Load(mine, nil)
	if err != nil {
		t.Fatal(err)
	}
	cli, err := identity.Load(theirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg := cli.Client("x/1", nil)
	cfg.VerifyConnection = nil
	if _, err, _ := shake(t, srv.Server("x/1", nil), cfg); err == nil || !strings.Contains(err.Error(), "another trust domain") {
		t.Fatalf("server error %v, want another trust domain", err)
	}
}
