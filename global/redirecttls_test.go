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
	"github.com/spillway-lb/spillway/geo/geofiles"
	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/certfile"
	clientorigin "github.com/spillway-lb/spillway/internal/httpedge/clientip"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// newTLSNode returns a node that serves redirects over TLS behind trusted proxies.
func newTLSNode(t *testing.T, headed bool) (s *Server, issue func() identity.CertFiles) {
	t.Helper()
	dir := t.TempDir()
	ca, err := identity.NewDevCA(dir, "test.example")
	if err != nil {
		t.Fatal(err)
	}
	issue = func() identity.CertFiles {
		f, err := ca.IssueCert(identity.ID{TrustDomain: "test.example", Role: identity.RoleGlobal, Name: "g1"}, dir, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := issue()
	certs, err := identity.LoadCerts(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	dot, err := certfile.LoadKeyPair("dns.tls.cert", f.Cert, f.Key, nil)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := certfile.LoadRootPool("http.proxy_ca", f.CA, nil)
	if err != nil {
		t.Fatal(err)
	}
	atlas, err := geofiles.NewLiveAtlas(geo.Config{Demo: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err = New(Config{
		Name: "g1", Certs: certs, RaftListen: "127.0.0.1:0", Heartbeat: testHeartbeat(), DNSListen: []string{"127.0.0.1:0"},
		DNS: dns.Config{TLS: &tls.Config{GetCertificate: dot.GetCertificate}, TLSListen: []string{"127.0.0.1:0"}}, DNSCert: dot, ProxyCA: pool,
		HTTPListen: "127.0.0.1:0", HTTPCert: f.Cert, HTTPKey: f.Key,
		Trusted: clientorigin.NewTrustedProxies([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, clientorigin.XForwardedFor), ProxyHeaders: headed,
		UplinkListen: "127.0.0.1:0", AdminSocket: filepath.Join(dir, "g1.sock"), MetricsListen: "127.0.0.1:0", Atlas: atlas,
		SpecName: "spec.yaml", Spec: []byte(testSpecText()), Version: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	s.SetPeers([]consensus.RaftPeer{{ID: "g1", Addr: s.RaftAddr().String()}})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { (&testFleet{t: t}).stopNode(s) })
	testkit.Eventually(t, "the node has a spec and a ticket key", func() bool {
		v := s.snapshot.Load()
		return v != nil && v.source == agreedState && len(v.state.TicketKeys) > 0
	})
	return s, issue
}

// callRedirectTLS calls the endpoint over TLS, after bytes in clear text, and returns the answer and the certificate.
func callRedirectTLS(t *testing.T, s *Server, clear, header string) (*http.Response, *tls.ConnectionState, error) {
	t.Helper()
	raw, err := net.Dial("tcp", s.HTTPAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(time.Minute))
	if _, err := raw.Write([]byte(clear)); err != nil {
		return nil, nil, err
	}
	c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true}) // the certificate is compared by the test
	if err := c.Handshake(); err != nil {
		return nil, nil, err
	}
	fmt.Fprintf(c, "GET /v1/models HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n%s\r\n", strings.TrimSuffix(testService, "."), testAPIKey, header)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil, nil, err
	}
	resp.Body.Close()
	state := c.ConnectionState()
	return resp, &state, nil
}

// The redirect endpoint serves TLS with the present content of the files, and steers by the client address from a
// trusted proxy.
func TestRedirectEndpointOverTLSBehindProxies(t *testing.T) {
	t.Parallel()
	s, issue := newTLSNode(t, false)
	to := func(region string) func(*http.Response) bool {
		return func(r *http.Response) bool { return strings.Contains(r.Header.Get("Location"), "//"+region+".") }
	}
	var first *tls.ConnectionState
	for region, client := range clientAddrs {
		resp, state, err := callRedirectTLS(t, s, "", "X-Forwarded-For: 203.0.113.250, "+client+"\r\n")
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
	_, second, err := callRedirectTLS(t, s, "", "")
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

// With PROXY headers the client address is that of the header. A proxy's connection without a header is closed and
// counted.
func TestRedirectEndpointTakesPROXYHeaders(t *testing.T) {
	t.Parallel()
	s, _ := newTLSNode(t, true)
	for region, client := range clientAddrs {
		resp, _, err := callRedirectTLS(t, s, "PROXY TCP4 "+client+" 127.0.0.1 4000 443\r\n", "")
		if err != nil || !strings.Contains(resp.Header.Get("Location"), "//"+region+".") {
			t.Fatalf("%s: %v %+v", region, err, resp)
		}
	}
	if _, _, err := callRedirectTLS(t, s, "", ""); err == nil {
		t.Error("a connection of a proxy without a PROXY header is served")
	}
	testkit.Eventually(t, "the connection is counted", func() bool {
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
func TestStatusShowsCertificateExpiry(t *testing.T) {
	t.Parallel()
	s, _ := newTLSNode(t, false)
	c, err := admin.Dial(s.cfg.AdminSocket, nil)
	if err != nil {
		t.Fatal(err)
	}
	st, err := c.GetStatus(t.Context())
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
