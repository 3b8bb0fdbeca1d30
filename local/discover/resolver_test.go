package discover

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// nameserver answers queries on loopback, by UDP and TCP on one port.
type nameserver struct {
	addr string
	udp  net.PacketConn
	tcp  net.Listener
	// say makes the answer; nil says nothing.
	say  atomic.Pointer[func(q dnsmessage.Message, tcp bool) []byte]
	done chan struct{}
}

func newNameserver(t *testing.T, say func(q dnsmessage.Message, tcp bool) []byte) *nameserver {
	t.Helper()
	s := &nameserver{done: make(chan struct{}, 2)}
	s.say.Store(&say)
	var err error
	for range 50 {
		if s.tcp, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if s.udp, err = net.ListenPacket("udp", s.tcp.Addr().String()); err == nil {
			break
		}
		_ = s.tcp.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	s.addr = s.tcp.Addr().String()
	go s.serveUDP()
	go s.serveTCP()
	t.Cleanup(func() { _ = s.udp.Close(); _ = s.tcp.Close(); <-s.done; <-s.done })
	return s
}

func (s *nameserver) serveUDP() {
	defer func() { s.done <- struct{}{} }()
	buf := make([]byte, 4096)
	for {
		n, from, err := s.udp.ReadFrom(buf)
		if err != nil {
			return
		}
		var q dnsmessage.Message
		if q.Unpack(buf[:n]) == nil {
			if out := (*s.say.Load())(q, false); out != nil {
				_, _ = s.udp.WriteTo(out, from)
			}
		}
	}
}

func (s *nameserver) serveTCP() {
	defer func() { s.done <- struct{}{} }()
	for {
		c, err := s.tcp.Accept()
		if err != nil {
			return
		}
		var length [2]byte
		var q dnsmessage.Message
		if _, err := io.ReadFull(c, length[:]); err == nil {
			buf := make([]byte, binary.BigEndian.Uint16(length[:]))
			if _, err := io.ReadFull(c, buf); err == nil && q.Unpack(buf) == nil {
				out := (*s.say.Load())(q, true)
				_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...))
			}
		}
		_ = c.Close()
	}
}

func reply(q dnsmessage.Message, change func(*dnsmessage.Message)) []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: q.ID, Response: true, RecursionAvailable: true}, Questions: q.Questions}
	change(&m)
	out, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return out
}

func addressOf(owner string, a ...byte) dnsmessage.Resource {
	h := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(owner), Class: dnsmessage.ClassINET, TTL: 1}
	if len(a) == 4 {
		return dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: [4]byte(a)}}
	}
	return dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: [16]byte(a)}}
}

func alias(owner, to string) dnsmessage.Resource {
	return dnsmessage.Resource{
		Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(owner), Class: dnsmessage.ClassINET},
		Body:   &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(to)},
	}
}

var askA = question{name: "vllm.test.", kind: dnsmessage.TypeA}

func TestResolverReadsAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		say  func(q dnsmessage.Message, tcp bool) []byte
		want string // addresses, or the outcome of the failure
	}{
		"addresses": {func(q dnsmessage.Message, _ bool) []byte {
			return reply(q, func(m *dnsmessage.Message) {
				m.Answers = []dnsmessage.Resource{addressOf("VLLM.test.", 10, 0, 0, 1), addressOf("vllm.test.", 10, 0, 0, 2)}
			})
		}, "10.0.0.1 10.0.0.2"},
		"aliases, and what was not asked": {func(q dnsmessage.Message, _ bool) []byte {
			return reply(q, func(m *dnsmessage.Message) {
				m.Answers = []dnsmessage.Resource{alias("vllm.test.", "b.test."), addressOf("evil.test.", 10, 6, 6, 6), alias("b.test.", "c.test."), addressOf("c.test.", 10, 0, 0, 3)}
			})
		}, "10.0.0.3"},
		"a circle of aliases": {func(q dnsmessage.Message, _ bool) []byte {
			return reply(q, func(m *dnsmessage.Message) {
				m.Answers = []dnsmessage.Resource{alias("vllm.test.", "b.test."), alias("b.test.", "vllm.test.")}
			})
		}, ""},
		"cut short, whole by TCP": {func(q dnsmessage.Message, tcp bool) []byte {
			return reply(q, func(m *dnsmessage.Message) {
				m.Truncated = !tcp
				for i := range 300 {
					if tcp {
						m.Answers = append(m.Answers, addressOf("vllm.test.", 10, 0, byte(i>>8), byte(i)))
					}
				}
			})
		}, "300 addresses"},
		"more than is taken": {func(q dnsmessage.Message, tcp bool) []byte {
			return reply(q, func(m *dnsmessage.Message) {
				m.Truncated = !tcp
				for i := range 2000 {
					if tcp {
						m.Answers = append(m.Answers, addressOf("vllm.test.", 10, 0, byte(i>>8), byte(i)))
					}
				}
			})
		}, "1024 addresses"},
		"cut short by TCP too": {func(q dnsmessage.Message, _ bool) []byte {
			return reply(q, func(m *dnsmessage.Message) { m.Truncated = true })
		}, "malformed"},
		"nothing": {func(q dnsmessage.Message, _ bool) []byte { return reply(q, func(*dnsmessage.Message) {}) }, ""},
		"no such name": {func(q dnsmessage.Message, _ bool) []byte {
			return reply(q, func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeNameError })
		}, "nxdomain"},
		"server fails": {func(q dnsmessage.Message, _ bool) []byte {
			return reply(q, func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeServerFailure })
		}, "refused"},
		"half a record": {func(q dnsmessage.Message, _ bool) []byte {
			out := reply(q, func(m *dnsmessage.Message) { m.Answers = []dnsmessage.Resource{addressOf("vllm.test.", 10, 0, 0, 1)} })
			return out[:len(out)-2]
		}, "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newNameserver(t, c.say)
			recs, err := (&resolver{server: s.addr}).lookup(t.Context(), askA)
			got := ""
			var e *lookupError
			switch {
			case errors.As(err, &e):
				got = e.outcome
			case err != nil:
				t.Fatalf("an error of no kind: %v", err)
			case len(recs) > 100:
				got = map[bool]string{true: "300 addresses", false: "1024 addresses"}[len(recs) == 300]
				if len(recs) > maxRecords {
					t.Errorf("%d records taken", len(recs))
				}
			default:
				var out []string
				for _, r := range recs {
					out = append(out, r.addr.String())
				}
				got = strings.Join(out, " ")
			}
			if got != c.want {
				t.Errorf("got %q (%v), want %q", got, err, c.want)
			}
		})
	}
}

// TestResolverIsNotFooled sends an answer with a wrong id, one to another question and one that is no answer first.
func TestResolverIsNotFooled(t *testing.T) {
	var s *nameserver
	ready := make(chan struct{})
	s = newNameserver(t, func(q dnsmessage.Message, _ bool) []byte { return nil })
	say := func(q dnsmessage.Message, _ bool) []byte {
		<-ready
		return reply(q, func(m *dnsmessage.Message) { m.Answers = []dnsmessage.Resource{addressOf("vllm.test.", 10, 0, 0, 1)} })
	}
	s.say.Store(&say)
	close(ready)
	id, query, err := pack(askA)
	if err != nil {
		t.Fatal(err)
	}
	var q dnsmessage.Message
	if err := q.Unpack(query); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*dnsmessage.Message){
		"id": func(m *dnsmessage.Message) { m.ID++ }, "query": func(m *dnsmessage.Message) { m.Response = false },
		"question": func(m *dnsmessage.Message) { m.Questions[0].Name = dnsmessage.MustNewName("x.test.") },
		"type":     func(m *dnsmessage.Message) { m.Questions[0].Type = dnsmessage.TypeAAAA },
		"none":     func(m *dnsmessage.Message) { m.Questions = nil },
	} {
		other := q
		other.Questions = slices.Clone(q.Questions)
		if answers(reply(other, change), id, askA) {
			t.Errorf("an answer with another %s is heard", what)
		}
	}
	if !answers(reply(q, func(*dnsmessage.Message) {}), id, askA) {
		t.Error("the right answer is not heard")
	}
	if recs, err := (&resolver{server: s.addr}).lookup(t.Context(), askA); err != nil || len(recs) != 1 {
		t.Errorf("got %v, %v", recs, err)
	}
}

func TestResolverGivesUp(t *testing.T) {
	s := newNameserver(t, func(dnsmessage.Message, bool) []byte { return nil })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := (&resolver{server: s.addr}).lookup(ctx, askA)
	var e *lookupError
	if !errors.As(err, &e) || e.outcome != "unreachable" {
		t.Errorf("a silent server gives %v", err)
	}
}

func TestSystemServers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("# c\nsearch a.test\nnameserver 10.0.0.2\nnameserver x\nnameserver fd00::2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := systemServers(file); !slices.Equal(got, []string{"10.0.0.2:53", "[fd00::2]:53"}) {
		t.Errorf("servers are %v", got)
	}
	if got := systemServers(file + ".none"); !slices.Equal(got, []string{"127.0.0.1:53"}) {
		t.Errorf("without a file servers are %v", got)
	}
}

func FuzzParse(f *testing.F) {
	_, query, err := pack(askA)
	if err != nil {
		f.Fatal(err)
	}
	var q dnsmessage.Message
	if err := q.Unpack(query); err != nil {
		f.Fatal(err)
	}
	f.Add(reply(q, func(m *dnsmessage.Message) {
		m.Answers = []dnsmessage.Resource{alias("vllm.test.", "b.test."), addressOf("b.test.", 10, 0, 0, 1)}
	}))
	f.Add(reply(q, func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeNameError }))
	f.Add(query)
	f.Fuzz(func(t *testing.T, msg []byte) {
		answers(msg, q.ID, askA)
		for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeSRV} {
			recs, truncated, err := parse(msg, question{name: askA.name, kind: kind})
			if len(recs) > maxRecords || truncated && err == nil || err != nil && len(recs) > 0 {
				t.Fatalf("%d records, truncated %v, error %v", len(recs), truncated, err)
			}
			for _, r := range clean(recs) {
				if kind == dnsmessage.TypeSRV && (r.target == "" || r.port == 0) || kind != dnsmessage.TypeSRV && !r.addr.IsValid() {
					t.Fatalf("a record that says nothing: %+v", r)
				}
			}
		}
	})
}
