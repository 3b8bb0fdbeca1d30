package dns

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/spillway-lb/spillway/internal/httpedge/clientip"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/timed"
)

func dialServer(t *testing.T, s *Server) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// askTCP sends a query and reads its answer.
func askTCP(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Write(prependLength(plainQuery("chat.api.example.", dns.TypeA))); err != nil {
		t.Fatal(err)
	}
	if m := unpackMessage(t, readFramed(t, c)); len(m.Answer) != 1 {
		t.Fatalf("got %v", m)
	}
}

// awaitClosed waits for the end of a connection.
func awaitClosed(t *testing.T, c net.Conn) {
	t.Helper()
	n, err := io.Copy(io.Discard, c)
	var timeout net.Error
	if n != 0 || errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatalf("connection is still open: %d bytes, %v", n, err)
	}
}

func TestTCPPipelineOfAThousandQueries(t *testing.T) {
	s := startServer(t, newFakeSnapshot(), nil)
	c := dialServer(t, s)
	const n = 1000
	go func() {
		var all []byte
		for i := range n {
			q := plainQuery("chat.api.example.", dns.TypeA)
			binary.BigEndian.PutUint16(q, uint16(i))
			all = append(all, prependLength(q)...)
		}
		_, _ = c.Write(all)
		_ = c.(*net.TCPConn).CloseWrite() // end of the queries, and every answer is still due
	}()
	for i := range n {
		if id := binary.BigEndian.Uint16(readFramed(t, c)); id != uint16(i) {
			t.Fatalf("answer %d has id %d", i, id)
		}
	}
	awaitClosed(t, c)
}

func TestAnswerDoesNotWaitForTheRestOfTheNextQuery(t *testing.T) {
	s := startServer(t, newFakeSnapshot(), nil)
	c := dialServer(t, s)
	q := prependLength(plainQuery("chat.api.example.", dns.TypeA))
	for _, cut := range []int{1, 2, 10} {
		if _, err := c.Write(append(bytes.Clone(q), q[:cut]...)); err != nil {
			t.Fatal(err)
		}
		readFramed(t, c)
		if _, err := c.Write(q[cut:]); err != nil {
			t.Fatal(err)
		}
		readFramed(t, c)
	}
}

func TestQueryByteByByteIsAnswered(t *testing.T) {
	s := startServer(t, newFakeSnapshot(), nil)
	c := dialServer(t, s)
	for _, b := range prependLength(plainQuery("chat.api.example.", dns.TypeA)) {
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	readFramed(t, c)
}

func TestUnansweredMessageKeepsTheConnection(t *testing.T) {
	s := startServer(t, newFakeSnapshot(), nil)
	c := dialServer(t, s)
	for _, raw := range [][]byte{{}, {1}, setFlags(plainQuery("chat.api.example.", dns.TypeA), bitQR)} {
		if _, err := c.Write(prependLength(raw)); err != nil {
			t.Fatal(err)
		}
	}
	askTCP(t, c)
}

func TestUnfinishedMessageEndsTheConnection(t *testing.T) {
	s := startServer(t, newFakeSnapshot(), nil)
	c := dialServer(t, s)
	begin := time.Now()
	if _, err := c.Write([]byte{0, 50, 1}); err != nil {
		t.Fatal(err)
	}
	awaitClosed(t, c)
	took := time.Since(begin)
	if took < messageTimeout {
		t.Errorf("ended after %v, want %v at the least", took, messageTimeout)
	}
	timed.AssertWithin(t, "the end of an unfinished message", took, messageTimeout+2*time.Second)
}

func TestKeepaliveOptionIsAnsweredOverTCPOnly(t *testing.T) {
	s := startServer(t, newFakeSnapshot(), nil)
	raw := appendOPT(plainQuery("chat.api.example.", dns.TypeA), 1232, 0, encodeOption(11))
	if b := exchangeTCP(t, s, raw); !bytes.Contains(b, encodeOption(11, 0, 100)) { // 10 s in units of 100 ms
		t.Errorf("answer %x over TCP lacks the timeout", b)
	}
	if m := unpackMessage(t, exchangeUDP(t, s, raw)); len(m.IsEdns0().Option) != 0 {
		t.Errorf("options %v over UDP", m.IsEdns0().Option)
	}
	bad := appendOPT(plainQuery("chat.api.example.", dns.TypeA), 1232, 0, encodeOption(11, 0, 1))
	if m := unpackMessage(t, exchangeTCP(t, s, bad)); m.Rcode != dns.RcodeFormatError {
		t.Errorf("a query that states a timeout: %v", m)
	}
}

func TestLongestIdleConnectionIsEvicted(t *testing.T) {
	s := startServer(t, newFakeSnapshot(), func(c *Config) { c.MaxTCPConns = 12 }) // 3 for each address
	var conns []net.Conn
	for i := range 3 {
		c := dialServer(t, s)
		askTCP(t, c)
		waitIdle(t, s, i+1) // the server notes the time after it has answered: without this the order is left to chance
		conns = append(conns, c)
	}
	askTCP(t, conns[0]) // now the second has been idle longest
	waitIdle(t, s, 3)
	fourth := dialServer(t, s)
	askTCP(t, fourth)
	awaitClosed(t, conns[1])
	askTCP(t, conns[0])
	askTCP(t, conns[2])
}

func TestBusyConnectionIsNotEvicted(t *testing.T) {
	s := startServer(t, newFakeSnapshot(), func(c *Config) { c.MaxTCPConns = 4 }) // one for each address
	busy := dialServer(t, s)
	askTCP(t, busy)
	waitIdle(t, s, 1)
	q := prependLength(plainQuery("chat.api.example.", dns.TypeA))
	if _, err := busy.Write(q[:5]); err != nil {
		t.Fatal(err)
	}
	waitIdle(t, s, 0)
	awaitClosed(t, dialServer(t, s))
	if _, err := busy.Write(q[5:]); err != nil {
		t.Fatal(err)
	}
	readFramed(t, busy)
}

// waitIdle waits until so many connections wait for a message.
func waitIdle(t *testing.T, s *Server, n int) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("%d connections are idle", n), func() bool {
		s.conns.mu.Lock()
		defer s.conns.mu.Unlock()
		idle := 0
		for c := range s.conns.open {
			if c.idle {
				idle++
			}
		}
		return idle == n
	})
}

func TestStopAnswersPendingQueries(t *testing.T) {
	s := startServer(t, newFakeSnapshot(), nil)
	idle, busy := dialServer(t, s), dialServer(t, s)
	askTCP(t, idle)
	askTCP(t, busy)
	waitIdle(t, s, 2)
	q := prependLength(plainQuery("chat.api.example.", dns.TypeA))
	if _, err := busy.Write(q[:5]); err != nil {
		t.Fatal(err)
	}
	waitIdle(t, s, 1)
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(context.Background()) }()
	awaitClosed(t, idle)
	if _, err := busy.Write(q[5:]); err != nil {
		t.Fatal(err)
	}
	readFramed(t, busy)
	awaitClosed(t, busy)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestStopIsBounded(t *testing.T) {
	s := startServer(t, newFakeSnapshot(), nil)
	c := dialServer(t, s)
	askTCP(t, c)
	waitIdle(t, s, 1)
	if _, err := c.Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	waitIdle(t, s, 0)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	begin := time.Now()
	if err := s.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that connections were cut", err)
	}
	timed.AssertWithin(t, "a stop without time", time.Since(begin), time.Second)
}

// The addresses of one IPv6 /64 share one bound on connections; other networks have their own.
func TestConnectionsAreBoundedPerNetwork(t *testing.T) {
	cs := newConnTable(16) // 4 for each
	admit := func(from string) bool {
		a := netip.MustParseAddr(from)
		_, ok := cs.addConn(&tcpConn{clientAddr: a, source: clientip.ClientLimitKey(a), table: cs})
		return ok
	}
	for i, want := range []bool{true, true, true, true, false} {
		if got := admit("2001:db8::" + string(rune('1'+i))); got != want {
			t.Errorf("connection %d of one /64: %v", i+1, got)
		}
	}
	for _, other := range []string{"2001:db8:0:1::1", "192.0.2.1", "192.0.2.2"} {
		if !admit(other) {
			t.Errorf("%s is refused", other)
		}
	}
}

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
