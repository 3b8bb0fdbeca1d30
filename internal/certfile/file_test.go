package certfile

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/internal/testkit"
)

// testCA signs certificates for "gw.test".
type testCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newTestCA(t testing.TB, ends time.Time) *testCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: ends,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tpl, tpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &testCA{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issueCert writes a pair to dir.
func (a *testCA) issueCert(t testing.TB, dir string, ends time.Time) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tpl := &x509.Certificate{SerialNumber: big.NewInt(ends.Unix()), DNSNames: []string{"gw.test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, tpl, a.cert, &k.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writeTestFile(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	writeTestFile(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}))
	return cert, key
}

func writeTestFile(t testing.TB, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// runHandshake is a client's verdict on a server.
func runHandshake(client, server *tls.Config) error {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	go func() { _ = tls.Server(b, server).Handshake() }()
	return tls.Client(a, client).Handshake()
}

// advanceModTime makes the next look due and the file newer than it was.
func advanceModTime(t testing.TB, name string, due func()) {
	t.Helper()
	at := time.Now().Add(time.Minute)
	if err := os.Chtimes(name, at, at); err != nil {
		t.Fatal(err)
	}
	due()
}

func TestChangedKeyPairIsReloaded(t *testing.T) {
	first, second := time.Now().Add(time.Hour).Truncate(time.Second), time.Now().Add(2*time.Hour).Truncate(time.Second)
	ca, dir := newTestCA(t, second), t.TempDir()
	cert, key := ca.issueCert(t, dir, first)
	p, err := LoadKeyPair("http.tls_cert", cert, key, nil)
	if err != nil || !p.Expires().Equal(first) {
		t.Fatalf("%v", err)
	}
	writeTestFile(t, cert, []byte("torn"))
	advanceModTime(t, cert, func() { p.nextCheck.Store(0) })
	if c, err := p.GetCertificate(nil); err != nil || !c.Leaf.NotAfter.Equal(first) {
		t.Error("a torn file replaced the certificate in use")
	}
	if err := p.Reload(); err == nil {
		t.Error("Reload accepts a torn file")
	}
	ca.issueCert(t, dir, second)
	advanceModTime(t, key, func() { p.nextCheck.Store(0) })
	if c, err := p.GetCertificate(nil); err != nil || !c.Leaf.NotAfter.Equal(second) || !p.Expires().Equal(second) {
		t.Error("the new certificate is not in use")
	}
}

func TestChangedRootPoolIsReloaded(t *testing.T) {
	ends := time.Now().Add(time.Hour).Truncate(time.Second)
	ca, other := newTestCA(t, ends), newTestCA(t, ends.Add(time.Hour))
	dir := t.TempDir()
	cert, key := ca.issueCert(t, dir, ends)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	server := &tls.Config{Certificates: []tls.Certificate{pair}}
	file := filepath.Join(dir, "ca.pem")
	writeTestFile(t, file, other.pem)
	p, err := LoadRootPool("http.proxy_ca", file, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := func(name string) *tls.Config {
		c := p.ClientConfig()
		c.ServerName = name
		return c
	}
	var unknown x509.UnknownAuthorityError
	if err := runHandshake(client("gw.test"), server); !errors.As(err, &unknown) {
		t.Errorf("a server of another authority: %v", err)
	}
	writeTestFile(t, file, append(append([]byte{}, other.pem...), ca.pem...))
	advanceModTime(t, file, func() { p.nextCheck.Store(0) })
	if err := runHandshake(client("gw.test"), server); err != nil {
		t.Errorf("after the file has changed: %v", err)
	}
	var name x509.HostnameError
	if err := runHandshake(client("evil.test"), server); !errors.As(err, &name) {
		t.Errorf("a server of another name: %v", err)
	}
	if !p.Expires().Equal(ends) {
		t.Errorf("expires %v, want the first to end, %v", p.Expires(), ends)
	}
	writeTestFile(t, file, []byte("nothing"))
	if err := p.Reload(); err == nil || runHandshake(client("gw.test"), server) != nil {
		t.Error("a file without certificates replaced the authorities in use")
	}
}

// TestFilesAreCheckedOncePerSecond: a change is in use within a second, and not before a look is due.
func TestFilesAreCheckedOncePerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
		ca, dir := newTestCA(t, second), t.TempDir()
		cert, key := ca.issueCert(t, dir, first)
		p, err := LoadKeyPair("http.tls_cert", cert, key, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = p.Expires() // a look
		ca.issueCert(t, dir, second)
		advanceModTime(t, cert, func() {})
		if !p.Expires().Equal(first) {
			t.Error("the files are looked at twice in a moment")
		}
		time.Sleep(fileCheckInterval)
		if !p.Expires().Equal(second) {
			t.Error("the new certificate is not in use a second later")
		}
	})
}

// TestBothFilesOfKeyPairAreChecked: a change of either is one of the pair.
func TestBothFilesOfKeyPairAreChecked(t *testing.T) {
	ends := time.Now().Add(time.Hour)
	cert, key := newTestCA(t, ends).issueCert(t, t.TempDir(), ends)
	p, err := LoadKeyPair("http.tls_cert", cert, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{cert, key} {
		before := p.readVersions()
		if advanceModTime(t, name, func() {}); p.readVersions() == before {
			t.Errorf("a change of %s is not seen", filepath.Base(name))
		}
	}
}

// TestRefusedFileIsRetried: a file that cannot be used is warned of once, and is tried at each look, for what was wrong may be
// over without a trace in its size and time.
func TestRefusedFileIsRetried(t *testing.T) {
	first, second := time.Now().Add(time.Hour).Truncate(time.Second), time.Now().Add(2*time.Hour).Truncate(time.Second)
	ca, dir := newTestCA(t, second), t.TempDir()
	cert, key := ca.issueCert(t, dir, first)
	var text testkit.LogBuffer
	p, err := LoadKeyPair("http.tls_cert", cert, key, slog.New(slog.NewTextHandler(&text, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ca.issueCert(t, dir, second)
	good, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(time.Minute)
	put := func(b []byte) {
		t.Helper()
		writeTestFile(t, cert, b)
		if err := os.Chtimes(cert, at, at); err != nil {
			t.Fatal(err)
		}
	}
	put(bytes.Repeat([]byte("x"), len(good)))
	for range 3 {
		if p.nextCheck.Store(0); !p.Expires().Equal(first) {
			t.Fatal("the certificate in use is replaced")
		}
	}
	if n := strings.Count(text.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings, want 1: %s", n, text.String())
	}
	put(good)
	if p.nextCheck.Store(0); !p.Expires().Equal(second) {
		t.Error("the file is not tried again")
	}
}

// TestRootPoolAcceptsIntermediates: a server may show authorities between its certificate and one in the file.
func TestRootPoolAcceptsIntermediates(t *testing.T) {
	ends := time.Now().Add(time.Hour).Truncate(time.Second)
	root, between := newTestCA(t, ends), newTestCA(t, ends)
	tpl := *between.cert
	tpl.Subject.CommonName = "between"
	der, err := x509.CreateCertificate(rand.Reader, &tpl, root.cert, &between.key.PublicKey, root.key)
	if err != nil {
		t.Fatal(err)
	}
	if between.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key := between.issueCert(t, dir, ends)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "ca.pem")
	writeTestFile(t, file, root.pem)
	p, err := LoadRootPool("http.proxy_ca", file, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := p.ClientConfig()
	client.ServerName = "gw.test"
	var unknown x509.UnknownAuthorityError
	if err := runHandshake(client, &tls.Config{Certificates: []tls.Certificate{pair}}); !errors.As(err, &unknown) {
		t.Errorf("without the authority between: %v", err)
	}
	pair.Certificate = append(pair.Certificate, der)
	if err := runHandshake(client, &tls.Config{Certificates: []tls.Certificate{pair}}); err != nil {
		t.Errorf("with the authority between: %v", err)
	}
}

// FuzzEarliestExpiry holds that no text makes reading authorities panic.
func FuzzEarliestExpiry(f *testing.F) {
	f.Add(newTestCA(f, time.Now().Add(time.Hour)).pem)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if at, err := EarliestExpiry(text); err == nil && at.IsZero() {
			t.Error("no time and no error")
		}
	})
}
