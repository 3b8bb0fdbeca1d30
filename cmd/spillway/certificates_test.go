package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// testWrongCertificates connects with wrong certificates: each is refused, counted and logged once.
func (w *inProcessFleet) testWrongCertificates(t *testing.T) {
	dir := t.TempDir()
	foreign := w.issueForeignCert(t, dir)
	local := w.loadFleetCert(t, "virginia-a-virginia-a-local1")
	operator := w.loadFleetCert(t, "operator")

	g1 := w.NodesByRole("global")[0]
	for name, certs := range map[string]*identity.Certs{"a foreign authority's": foreign, "a local's": local} {
		w.expectRefused(t, name+" certificate at a global's uplink", g1.Addr["metrics"], `spillway_global_refused_total{listener="uplink"}`, func() error {
			return tryUplink(t, certs, g1.Addr["uplink"], identity.RoleGlobal)
		})
	}
	for name, certs := range map[string]*identity.Certs{"a foreign authority's": foreign, "a local's": local, "an operator's": operator} {
		for _, alpn := range []string{"spillway-raft/1", "spillway-propose/1"} {
			w.expectRefused(t, name+" certificate at "+alpn, g1.Addr["metrics"], `spillway_global_refused_total{listener="raft"}`, func() error {
				return tryHandshake(certs, g1.Addr["raft"], alpn)
			})
		}
	}
	if n := strings.Count(w.logs.grepLines(`level=WARN.*refused.*region/virginia/zone/a/local`, 100), "\n"); n == 0 || n > 3 {
		t.Errorf("a local instance at the wrong listener is logged %d times, want once for each listener", n)
	}
}

// issueForeignCert issues a gateway's certificate from a CA that the fleet does not trust. Its holder trusts the fleet's CA.
func (w *inProcessFleet) issueForeignCert(t *testing.T, dir string) *identity.Certs {
	t.Helper()
	ca, err := identity.NewDevCA(dir, "spillway.test")
	if err != nil {
		t.Fatal(err)
	}
	files, err := ca.IssueCert(identity.ID{TrustDomain: "spillway.test", Role: identity.RoleGateway, Region: "virginia", Name: "mallory"}, dir, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	both := filepath.Join(dir, "both.pem")
	ours, err := os.ReadFile(filepath.Join(w.Dir, "certs", "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.ReadFile(files.CA)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(both, bytes.Join([][]byte{ours, theirs}, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	certs, err := identity.LoadCerts(identity.CertFiles{Cert: files.Cert, Key: files.Key, CA: both}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return certs
}

// loadFleetCert loads one of the fleet's certificates.
func (w *inProcessFleet) loadFleetCert(t *testing.T, name string) *identity.Certs {
	t.Helper()
	at := func(file string) string { return filepath.Join(w.Dir, "certs", file) }
	certs, err := identity.LoadCerts(identity.CertFiles{Cert: at(name + ".pem"), Key: at(name + ".key"), CA: at("ca.pem")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return certs
}

// expectRefused calls connect, which must fail, and waits until the counter has increased.
func (w *inProcessFleet) expectRefused(t *testing.T, what string, metrics netip.AddrPort, counter string, connect func() error) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	count := func() float64 {
		page, err := fetchPage(client, fmt.Sprintf("http://%s/metrics", metrics))
		if err != nil {
			t.Fatal(err)
		}
		n, err := readSample(page, counter)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	err := connect()
	if err == nil {
		t.Errorf("%s is accepted", what)
	}
	t.Logf("%s: %v", what, err)
	waitForSuccess(t, testTimeout, what+" is counted as refused", func() error {
		if now := count(); now <= before {
			return fmt.Errorf("still %v", now)
		}
		return nil
	})
}

// tryUplink opens an uplink session to a parent and returns the error.
func tryUplink(t *testing.T, certs *identity.Certs, parent netip.AddrPort, role identity.Role) error {
	t.Helper()
	c, err := uplink.NewChild(uplink.ChildConfig{
		Certs: certs, Parents: []string{parent.String()}, ParentRole: role,
		BuildSummary: func(time.Time) capacity.Summary { return capacity.Summary{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	untried := c.Sessions()[0].Err
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Errorf("stopping a refused child: %v", err)
		}
	}()
	var why error
	waitForSuccess(t, testTimeout, "the parent answers", func() error {
		s := c.Sessions()[0]
		if why = s.Err; !s.Connected && errors.Is(why, untried) {
			return errors.New("neither let in nor refused")
		}
		return nil
	})
	return why
}

// tryHandshake makes a TLS handshake and returns the error of the first read: in TLS 1.3 the client's handshake is complete
// before the server verifies the client's certificate.
func tryHandshake(certs *identity.Certs, addr netip.AddrPort, alpn string) error {
	c, err := tls.Dial("tcp", addr.String(), certs.ClientTLS(alpn, func(identity.ID) error { return nil }))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(testTimeout)); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1))
	return err
}
