package global

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/certfile"
	"github.com/spillway-lb/spillway/internal/identity"
	clientorigin "github.com/spillway-lb/spillway/internal/origin"
)

// secured is a node that serves redirects by TLS behind trusted proxies.
func secured(t *testing.T, headed bool) (s *Server, issue func() identity.Files) {
	t.Helper()
	dir := t.TempDir()
	ca, err := identity.NewDevCA(dir, "test.example")
	if err != nil {
		t.Fatal(err)
	}
	issue = func() identity.Files {
		f, err := ca.Issue(identity.ID{TrustDomain: "test.example", Role: identity.RoleGlobal, Name: "g1"}, dir, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := issue()
	certs, err := identity.Load(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	dot, err := certfile.LoadPair("dns.tls.cert", f.Cert, f.Key, nil)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := certfile.LoadPool("http.proxy_ca", f.CA, nil)
	if err != nil {
		t.Fatal(err)
	}
	atlas, err := geo.NewLive(geo.Config{Demo: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err = New(Config{
		Name: "g1", Certs: certs, RaftListen: "127.0.0.1:0", Heartbeat: heartbeat(), DNSListen: []string{"127.0.0.1:0"},
		DNS: dns.Config{TLS: &tls.Config{GetCertificate: dot.Get}, TLSListen: []string{"127.0.0.1:0"}}, DNSCert: dot, ProxyCA: pool,
		HTTPListen: "127.0.0.1:0", HTTPCert: f.Cert, HTTPKey: f.Key,
		Trusted: clientorigin.NewTrusted([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, clientorigin.XForwardedFor), ProxyHeaders: headed,
		UplinkListen: "127.0.0.1:0", AdminSocket: filepath.Join(dir, "g1.sock"), MetricsListen: "127.0.0.1:0", Atlas: atlas,
		SpecName: "spec.yaml", Spec: []byte(specText()), Version: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	s.SetPeers([]consensus.Peer{{ID: "g1", Addr: s.RaftAddr().String()}})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { (&planet{t: t}).stop(s) })
	eventually(t, 10*time.Second, "the node has a spec and a ticket key", func() bool {
		v := s.view.Load()
		return v != nil && v.from == agreedState && len(v.state.TicketKeys) > 0
	})
	return s, issue
}

// redirectOf calls the endpoint over TLS, after bytes in clear, and returns the answer and the certificate.
func redirectOf(t *testing.T, s *Server, clear, header string) (*http.Response, *tls.ConnectionState, error) {
	t.Helper()
	raw, err := net.Dial("tcp", s.HTTPAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := raw.Write([]byte(clear)); err != nil {
		return nil, nil, err
	}
	c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true}) // the certificate is compared by the test
	if err := c.Handshake(); err != nil {
		return nil, nil, err
	}
	fmt.Fprintf(c, "GET /v1/models HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n%s\r\n", strings.TrimSuffix(service, "."), apiKey1, header)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil, nil, err
	}
	resp.Body.Close()
	state := c.ConnectionState()
	return resp, &state, nil
}

// The redirect endpoint serves TLS with the files as they are now, and steers by the client that a trusted proxy states.
func TestRedirectEndpointOverTLSBehindProxies(t *testing.T) {
	s, issue := secured(t, false)
	to := func(region string) func(*http.Response) bool {
		return func(r *http.Response) bool { return strings.Contains(r.Header.Get("Location"), "//"+region+".") }
	}
	var first *tls.ConnectionState
	for region, client := range clients {
		resp, state, err := redirectOf(t, s, "", "X-Forwarded-For: 203.0.113.250, "+client+"\r\n")
		if err != nil || resp.StatusCode != http.StatusTemporaryRedirect || !to(region)(resp) {
			t.Fatalf("%s: %v %+v", region, err, resp)
		}
		first = state
	}
	issue()
	at := time.Now().Add(time.Minute)
	for _, f := range []string{s.cfg.HTTPCert, s.cfg.HTTPKey} {
		if err := os.Chtimes(f, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	_, second, err := redirectOf(t, s, "", "")
	if err != nil || second.PeerCertificates[0].Equal(first.PeerCertificates[0]) {
		t.Errorf("after the files have changed the old certificate is shown: %v", err)
	}
	c, err := tls.Dial("tcp", s.DNSAddrs()[1].String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"dot"}})
	if err != nil {
		t.Fatal(err)
	}
	if !c.ConnectionState().PeerCertificates[0].Equal(second.PeerCertificates[0]) {
		t.Error("DNS over TLS shows the old certificate")
	}
	c.Close()
}

// With PROXY headers the client is the one that the header states; a connection of a proxy without one is ended and counted.
func TestRedirectEndpointTakesPROXYHeaders(t *testing.T) {
	s, _ := secured(t, true)
	for region, client := range clients {
		resp, _, err := redirectOf(t, s, "PROXY TCP4 "+client+" 127.0.0.1 4000 443\r\n", "")
		if err != nil || !strings.Contains(resp.Header.Get("Location"), "//"+region+".") {
			t.Fatalf("%s: %v %+v", region, err, resp)
		}
	}
	if _, _, err := redirectOf(t, s, "", ""); err == nil {
		t.Error("a connection of a proxy without a PROXY header is served")
	}
	eventually(t, 5*time.Second, "the connection is counted", func() bool {
		all, err := s.cfg.Registry.Gather()
		if err != nil {
			return false
		}
		for _, m := range all {
			if m.GetName() == "spillway_global_http_refused_total" {
				return len(m.Metric) > 0
			}
		}
		return false
	})
}

// Every certificate of the node is in its status.
func TestStatusShowsWhenCertificatesEnd(t *testing.T) {
	s, _ := secured(t, false)
	c, err := admin.Dial(s.cfg.AdminSocket, nil)
	if err != nil {
		t.Fatal(err)
	}
	st, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range st.Certificates {
		if names = append(names, x.Name); x.ExpiresAt.Before(time.Now()) {
			t.Errorf("%s ends at %v", x.Name, x.ExpiresAt)
		}
	}
	if got := strings.Join(names, " "); got != "tls.cert tls.ca http.tls_cert dns.tls.cert http.proxy_ca" {
		t.Errorf("certificates %s", got)
	}
	resp, err := http.Get("http://" + s.Admin().MetricsAddr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	n := 0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "spillway_certificate_expiry_timestamp_seconds{") {
			n++
		}
	}
	if n != 5 {
		t.Errorf("%d series of expiries", n)
	}
}
