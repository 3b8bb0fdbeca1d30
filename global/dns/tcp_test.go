package dns

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func dial(t *testing.T, s *Server) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

// ask sends a query and reads its answer.
func ask(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Write(framed(query1("chat.api.example.", dns.TypeA))); err != nil {
		t.Fatal(err)
	}
	if m := unpack(t, readFramed(t, c)); len(m.Answer) != 1 {
		t.Fatalf("got %v", m)
	}
}

// closed waits for the end of a connection.
func closed(t *testing.T, c net.Conn) {
	t.Helper()
	n, err := io.Copy(io.Discard, c)
	var timeout net.Error
	if n != 0 || errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatalf("connection is still open: %d bytes, %v", n, err)
	}
}

func TestPipelineOfAThousand(t *testing.T) {
	s := start(t, newWorld(), nil)
	c := dial(t, s)
	const n = 1000
	go func() {
		var all []byte
		for i := range n {
			q := query1("chat.api.example.", dns.TypeA)
			binary.BigEndian.PutUint16(q, uint16(i))
			all = append(all, framed(q)...)
		}
		_, _ = c.Write(all)
		_ = c.(*net.TCPConn).CloseWrite() // no more to come, and yet every answer is due
	}()
	for i := range n {
		if id := binary.BigEndian.Uint16(readFramed(t, c)); id != uint16(i) {
			t.Fatalf("answer %d has id %d", i, id)
		}
	}
	closed(t, c)
}

func TestAnswerDoesNotWaitForTheRestOfTheNextQuery(t *testing.T) {
	s := start(t, newWorld(), nil)
	c := dial(t, s)
	q := framed(query1("chat.api.example.", dns.TypeA))
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
	s := start(t, newWorld(), nil)
	c := dial(t, s)
	for _, b := range framed(query1("chat.api.example.", dns.TypeA)) {
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	readFramed(t, c)
}

func TestNothingWorthAnAnswerKeepsTheConnection(t *testing.T) {
	s := start(t, newWorld(), nil)
	c := dial(t, s)
	for _, raw := range [][]byte{{}, {1}, flags(query1("chat.api.example.", dns.TypeA), bitQR)} {
		if _, err := c.Write(framed(raw)); err != nil {
			t.Fatal(err)
		}
	}
	ask(t, c)
}

func TestUnfinishedMessageEndsTheConnection(t *testing.T) {
	s := start(t, newWorld(), nil)
	c := dial(t, s)
	begin := time.Now()
	if _, err := c.Write([]byte{0, 50, 1}); err != nil {
		t.Fatal(err)
	}
	closed(t, c)
	if took := time.Since(begin); took < messageTimeout || took > messageTimeout+2*time.Second {
		t.Errorf("ended after %v, want soon after %v", took, messageTimeout)
	}
}

func TestKeepaliveOptionIsAnsweredOverTCPOnly(t *testing.T) {
	s := start(t, newWorld(), nil)
	raw := edns(query1("chat.api.example.", dns.TypeA), 1232, 0, opt1(11))
	if b := exchangeTCP(t, s, raw); !bytes.Contains(b, opt1(11, 0, 100)) { // 10 s in units of 100 ms
		t.Errorf("answer %x over TCP lacks the timeout", b)
	}
	if m := unpack(t, exchangeUDP(t, s, raw)); len(m.IsEdns0().Option) != 0 {
		t.Errorf("options %v over UDP", m.IsEdns0().Option)
	}
	bad := edns(query1("chat.api.example.", dns.TypeA), 1232, 0, opt1(11, 0, 1))
	if m := unpack(t, exchangeTCP(t, s, bad)); m.Rcode != dns.RcodeFormatError {
		t.Errorf("a query that states a timeout: %v", m)
	}
}

func TestIdleLongestMakesRoom(t *testing.T) {
	s := start(t, newWorld(), func(c *Config) { c.MaxTCP = 12 }) // 3 for each address
	var conns []net.Conn
	for range 3 {
		c := dial(t, s)
		ask(t, c)
		conns = append(conns, c)
	}
	ask(t, conns[0]) // now the second has been idle longest
	waitIdle(t, s, 3)
	fourth := dial(t, s)
	ask(t, fourth)
	closed(t, conns[1])
	ask(t, conns[0])
	ask(t, conns[2])
}

func TestBusyConnectionIsNotEvicted(t *testing.T) {
	s := start(t, newWorld(), func(c *Config) { c.MaxTCP = 4 }) // one for each address
	busy := dial(t, s)
	ask(t, busy)
	waitIdle(t, s, 1)
	q := framed(query1("chat.api.example.", dns.TypeA))
	if _, err := busy.Write(q[:5]); err != nil {
		t.Fatal(err)
	}
	waitIdle(t, s, 0)
	closed(t, dial(t, s))
	if _, err := busy.Write(q[5:]); err != nil {
		t.Fatal(err)
	}
	readFramed(t, busy)
}

// waitIdle waits until so many connections wait for a message.
func waitIdle(t *testing.T, s *Server, n int) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		s.conns.mu.Lock()
		idle := 0
		for c := range s.conns.open {
			if c.idle {
				idle++
			}
		}
		s.conns.mu.Unlock()
		if idle == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections idle, want %d", idle, n)
		}
	}
}

func TestStopAnswersWhatWasAsked(t *testing.T) {
	s := start(t, newWorld(), nil)
	idle, busy := dial(t, s), dial(t, s)
	ask(t, idle)
	ask(t, busy)
	waitIdle(t, s, 2)
	q := framed(query1("chat.api.example.", dns.TypeA))
	if _, err := busy.Write(q[:5]); err != nil {
		t.Fatal(err)
	}
	waitIdle(t, s, 1)
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(context.Background()) }()
	closed(t, idle)
	if _, err := busy.Write(q[5:]); err != nil {
		t.Fatal(err)
	}
	readFramed(t, busy)
	closed(t, busy)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestStopIsBounded(t *testing.T) {
	s := start(t, newWorld(), nil)
	c := dial(t, s)
	ask(t, c)
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
	if took := time.Since(begin); took > time.Second {
		t.Errorf("took %v", took)
	}
}
