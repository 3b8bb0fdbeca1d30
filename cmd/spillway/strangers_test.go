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

// testStrangers knocks with certificates that do not fit: each is refused, counted and logged once.
func (w *world) testStrangers(t *testing.T) {
	dir := t.TempDir()
	foreign := w.foreign(t, dir)
	local := w.certs(t, "virginia-a-virginia-a-local1")
	operator := w.certs(t, "operator")

	g1 := w.Of("global")[0]
	for name, certs := range map[string]*identity.Certs{"a foreign authority's": foreign, "a local's": local} {
		w.refused(t, name+" certificate at a global's uplink", g1.Addr["metrics"], `spillway_global_refused_total{listener="uplink"}`, func() error {
			return report(t, certs, g1.Addr["uplink"], identity.RoleGlobal)
		})
	}
	for name, certs := range map[string]*identity.Certs{"a foreign authority's": foreign, "a local's": local, "an operator's": operator} {
		for _, alpn := range []string{"spillway-raft/1", "spillway-propose/1"} {
			w.refused(t, name+" certificate at "+alpn, g1.Addr["metrics"], `spillway_global_refused_total{listener="raft"}`, func() error {
				return knock(certs, g1.Addr["raft"], alpn)
			})
		}
	}
	if n := strings.Count(w.log.grep(`level=WARN.*refused.*region/virginia/zone/a/local`, 100), "\n"); n == 0 || n > 3 {
		t.Errorf("a local at the wrong door is logged %d times, want once for each door", n)
	}
}

// foreign is a gateway's certificate from an authority that the planet does not know, in the hands of somebody who
// trusts the planet.
func (w *world) foreign(t *testing.T, dir string) *identity.Certs {
	t.Helper()
	ca, err := identity.NewDevCA(dir, "spillway.test")
	if err != nil {
		t.Fatal(err)
	}
	files, err := ca.Issue(identity.ID{TrustDomain: "spillway.test", Role: identity.RoleGateway, Region: "virginia", Name: "mallory"}, dir, time.Hour)
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
	certs, err := identity.Load(identity.Files{Cert: files.Cert, Key: files.Key, CA: both}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return certs
}

// certs opens one of the planet's own certificates.
func (w *world) certs(t *testing.T, name string) *identity.Certs {
	t.Helper()
	at := func(file string) string { return filepath.Join(w.Dir, "certs", file) }
	certs, err := identity.Load(identity.Files{Cert: at(name + ".pem"), Key: at(name + ".key"), CA: at("ca.pem")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return certs
}

// refused knocks and waits for the counter to tell.
func (w *world) refused(t *testing.T, what string, metrics netip.AddrPort, counter string, knock func() error) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	count := func() float64 {
		page, err := fetch(client, fmt.Sprintf("http://%s/metrics", metrics))
		if err != nil {
			t.Fatal(err)
		}
		n, err := sample(page, counter)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	err := knock()
	if err == nil {
		t.Errorf("%s is let in", what)
	}
	t.Logf("%s: %v", what, err)
	eventually(t, patience, what+" is counted as refused", func() error {
		if now := count(); now <= before {
			return fmt.Errorf("still %v", now)
		}
		return nil
	})
}

// report tries to become a child of a parent and returns why it could not.
func report(t *testing.T, certs *identity.Certs, parent netip.AddrPort, role identity.Role) error {
	t.Helper()
	c, err := uplink.NewChild(uplink.ChildConfig{
		Certs: certs, Parents: []string{parent.String()}, ParentRole: role,
		Summary: func(time.Time) capacity.Summary { return capacity.Summary{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	untried := c.Sessions()[0].Err
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Errorf("stopping a child that nobody wants: %v", err)
		}
	}()
	var why error
	eventually(t, patience, "the parent answers", func() error {
		s := c.Sessions()[0]
		if why = s.Err; !s.Connected && errors.Is(why, untried) {
			return errors.New("neither let in nor refused")
		}
		return nil
	})
	return why
}

// knock shakes hands over TLS as a member would and returns what the other side says to that. A server's refusal comes
// with the first read: in TLS 1.3 the client is done before the server has seen its certificate.
func knock(certs *identity.Certs, addr netip.AddrPort, alpn string) error {
	c, err := tls.Dial("tcp", addr.String(), certs.Client(alpn, func(identity.ID) error { return nil }))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1))
	return err
}
