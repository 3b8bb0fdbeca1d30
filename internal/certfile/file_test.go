package certfile

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority signs certificates for "gw.test".
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t testing.TB, ends time.Time) *authority {
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
	return &authority{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue writes a pair to dir.
func (a *authority) issue(t testing.TB, dir string, ends time.Time) (cert, key string) {
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
	write(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	write(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}))
	return cert, key
}

func write(t testing.TB, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// handshake is a client's verdict on a server.
func handshake(client, server *tls.Config) error {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	go func() { _ = tls.Server(b, server).Handshake() }()
	return tls.Client(a, client).Handshake()
}

// later makes the next look due and the file newer than it was.
func later(t testing.TB, name string, due func()) {
	t.Helper()
	at := time.Now().Add(time.Minute)
	if err := os.Chtimes(name, at, at); err != nil {
		t.Fatal(err)
	}
	due()
}

func TestPairIsReadAgain(t *testing.T) {
	first, second := time.Now().Add(time.Hour).Truncate(time.Second), time.Now().Add(2*time.Hour).Truncate(time.Second)
	ca, dir := newAuthority(t, second), t.TempDir()
	cert, key := ca.issue(t, dir, first)
	p, err := LoadPair("http.tls_cert", cert, key, nil)
	if err != nil || !p.Expires().Equal(first) {
		t.Fatalf("%v", err)
	}
	write(t, cert, []byte("torn"))
	later(t, cert, func() { p.due.Store(0) })
	if c, err := p.Get(nil); err != nil || !c.Leaf.NotAfter.Equal(first) {
		t.Error("a torn file replaced the certificate in use")
	}
	if err := p.Reload(); err == nil {
		t.Error("Reload accepts a torn file")
	}
	ca.issue(t, dir, second)
	later(t, key, func() { p.due.Store(0) })
	if c, err := p.Get(nil); err != nil || !c.Leaf.NotAfter.Equal(second) || !p.Expires().Equal(second) {
		t.Error("the new certificate is not in use")
	}
}

func TestPoolIsReadAgain(t *testing.T) {
	ends := time.Now().Add(time.Hour).Truncate(time.Second)
	ca, other := newAuthority(t, ends), newAuthority(t, ends.Add(time.Hour))
	dir := t.TempDir()
	cert, key := ca.issue(t, dir, ends)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	server := &tls.Config{Certificates: []tls.Certificate{pair}}
	file := filepath.Join(dir, "ca.pem")
	write(t, file, other.pem)
	p, err := LoadPool("http.proxy_ca", file, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := func(name string) *tls.Config {
		c := p.ClientConfig()
		c.ServerName = name
		return c
	}
	var unknown x509.UnknownAuthorityError
	if err := handshake(client("gw.test"), server); !errors.As(err, &unknown) {
		t.Errorf("a server of another authority: %v", err)
	}
	write(t, file, append(append([]byte{}, other.pem...), ca.pem...))
	later(t, file, func() { p.due.Store(0) })
	if err := handshake(client("gw.test"), server); err != nil {
		t.Errorf("after the file has changed: %v", err)
	}
	var name x509.HostnameError
	if err := handshake(client("evil.test"), server); !errors.As(err, &name) {
		t.Errorf("a server of another name: %v", err)
	}
	if !p.Expires().Equal(ends) {
		t.Errorf("expires %v, want the first to end, %v", p.Expires(), ends)
	}
	write(t, file, []byte("nothing"))
	if err := p.Reload(); err == nil || handshake(client("gw.test"), server) != nil {
		t.Error("a file without certificates replaced the authorities in use")
	}
}

// FuzzEarliest holds that no text makes reading authorities panic.
func FuzzEarliest(f *testing.F) {
	f.Add(newAuthority(f, time.Now().Add(time.Hour)).pem)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if at, err := Earliest(text); err == nil && at.IsZero() {
			t.Error("no time and no error")
		}
	})
}
