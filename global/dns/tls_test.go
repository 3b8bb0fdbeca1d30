package dns

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func newCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"ns1.dns.api.example"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func startTLS(t *testing.T) (s *Server, at string) {
	t.Helper()
	cert := newCertificate(t)
	s = startServer(t, newFakeSnapshot(), func(c *Config) {
		c.TLSListen, c.TLS = []string{"127.0.0.1:0"}, &tls.Config{Certificates: []tls.Certificate{cert}}
	})
	return s, s.Addrs()[1].String()
}

func dialTLS(t *testing.T, at string, protocols ...string) *tls.Conn {
	t.Helper()
	c, err := tls.Dial("tcp", at, &tls.Config{InsecureSkipVerify: true, NextProtos: protocols})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

func TestDNSOverTLS(t *testing.T) {
	_, at := startTLS(t)
	for _, protocols := range [][]string{{"dot"}, nil} {
		c := dialTLS(t, at, protocols...)
		if len(protocols) > 0 && c.ConnectionState().NegotiatedProtocol != "dot" {
			t.Errorf("negotiated %q", c.ConnectionState().NegotiatedProtocol)
		}
		var all []byte
		for i := range 50 {
			q := appendOPT(plainQuery("chat.api.example.", dns.TypeA), 1232, 0, encodeOption(11))
			binary.BigEndian.PutUint16(q, uint16(i))
			all = append(all, prependLength(q)...)
		}
		if _, err := c.Write(all); err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			if m := unpackMessage(t, readFramed(t, c)); int(m.Id) != i || len(m.Answer) != 1 || len(findOption(t, m, 11)) != 2 {
				t.Fatalf("got %v", m)
			}
		}
	}
	if c, err := tls.Dial("tcp", at, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}); err == nil {
		_ = c.Close()
		t.Error("a client of another protocol was admitted")
	}
}

// TestPaddingOverTLS checks that the size of an answer is padded (RFC 8467) if the client pads too, and only over
// TLS.
func TestPaddingOverTLS(t *testing.T) {
	s, at := startTLS(t)
	c := dialTLS(t, at, "dot")
	for _, name := range []string{"chat.api.example.", "nope.api.example.", "wide.api.example.", "elsewhere.example."} {
		q := appendOPT(plainQuery(name, dns.TypeA), 1232, 0, encodeOption(12, make([]byte, 60)...))
		if _, err := c.Write(prependLength(q)); err != nil {
			t.Fatal(err)
		}
		b := readFramed(t, c)
		if len(b)%paddingBlock != 0 {
			t.Errorf("%s: %d bytes", name, len(b))
		}
		unpackMessage(t, b)
		if plain := exchangeTCP(t, s, q); len(plain)%paddingBlock == 0 {
			t.Errorf("%s: %d bytes without TLS", name, len(plain))
		}
	}
	bare := prependLength(appendOPT(plainQuery("chat.api.example.", dns.TypeA), 1232, 0, nil))
	if _, err := c.Write(bare); err != nil {
		t.Fatal(err)
	}
	if b := readFramed(t, c); len(b)%paddingBlock == 0 {
		t.Errorf("a client that does not pad got %d bytes", len(b))
	}
}

func TestUnfinishedTLSHandshakeEnds(t *testing.T) {
	_, at := startTLS(t)
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte{22, 3, 1}); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(handshakeTimeout + time.Minute))
	awaitClosed(t, c)
}

func TestTLSNeedsACertificate(t *testing.T) {
	_, err := New(Config{Listen: []string{"127.0.0.1:0"}, TLSListen: []string{"127.0.0.1:0"}, Snapshot: func() Snapshot { return nil }})
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("error %v", err)
	}
}
