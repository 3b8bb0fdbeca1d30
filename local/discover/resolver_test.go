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

// fakeNameserver answers queries on loopback, by UDP and TCP on one port.
type fakeNameserver struct {
	addr string
	udp  net.PacketConn
	tcp  net.Listener
	// makeReply makes the answer; nil sends none.
	makeReply atomic.Pointer[func(q dnsmessage.Message, tcp bool) []byte]
	done      chan struct{}
}

func newFakeNameserver(t *testing.T, say func(q dnsmessage.Message, tcp bool) []byte) *fakeNameserver {
	t.Helper()
	s := &fakeNameserver{done: make(chan struct{}, 2)}
	s.makeReply.Store(&say)
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

func (s *fakeNameserver) serveUDP() {
	defer func() { s.done <- struct{}{} }()
	buf := make([]byte, 4096)
	for {
		n, from, err := s.udp.ReadFrom(buf)
		if err != nil {
			return
		}
		var q dnsmessage.Message
		if q.Unpack(buf[:n]) == nil {
			if out := (*s.makeReply.Load())(q, false); out != nil {
				_, _ = s.udp.WriteTo(out, from)
			}
		}
	}
}

func (s *fakeNameserver) serveTCP() {
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
				out := (*s.makeReply.Load())(q, true)
				_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...))
			}
		}
		_ = c.Close()
	}
}

func packReply(q dnsmessage.Message, change func(*dnsmessage.Message)) []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: q.ID, Response: true, RecursionAvailable: true}, Questions: q.Questions}
	change(&m)
	out, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return out
}

func addressRecord(owner string, a ...byte) dnsmessage.Resource {
	h := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(owner), Class: dnsmessage.ClassINET, TTL: 1}
	if len(a) == 4 {
		return dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: [4]byte(a)}}
	}
	return dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: [16]byte(a)}}
}

func cnameRecord(owner, to string) dnsmessage.Resource {
	return dnsmessage.Resource{
		Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(owner), Class: dnsmessage.ClassINET},
		Body:   &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(to)},
	}
}

var questionA = dnsQuestion{name: "vllm.test.", kind: dnsmessage.TypeA}

func TestResolverReadsAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		say  func(q dnsmessage.Message, tcp bool) []byte
		want string // addresses, or the outcome of the failure
	}{
		"addresses": {func(q dnsmessage.Message, _ bool) []byte {
			return packReply(q, func(m *dnsmessage.Message) {
				m.Answers = []dnsmessage.Resource{addressRecord("VLLM.test.", 10, 0, 0, 1), addressRecord("vllm.test.", 10, 0, 0, 2)}
			})
		}, "10.0.0.1 10.0.0.2"},
		"aliases, and what was not asked": {func(q dnsmessage.Message, _ bool) []byte {
			return packReply(q, func(m *dnsmessage.Message) {
				m.Answers = []dnsmessage.Resource{cnameRecord("vllm.test.", "b.test."), addressRecord("evil.test.", 10, 6, 6, 6), cnameRecord("b.test.", "c.test."), addressRecord("c.test.", 10, 0, 0, 3)}
			})
		}, "10.0.0.3"},
		"a circle of aliases": {func(q dnsmessage.Message, _ bool) []byte {
			return packReply(q, func(m *dnsmessage.Message) {
				m.Answers = []dnsmessage.Resource{cnameRecord("vllm.test.", "b.test."), cnameRecord("b.test.", "vllm.test.")}
			})
		}, ""},
		"cut short, whole by TCP": {func(q dnsmessage.Message, tcp bool) []byte {
			return packReply(q, func(m *dnsmessage.Message) {
				m.Truncated = !tcp
				for i := range 300 {
					if tcp {
						m.Answers = append(m.Answers, addressRecord("vllm.test.", 10, 0, byte(i>>8), byte(i)))
					}
				}
			})
		}, "300 addresses"},
		"more than is taken": {func(q dnsmessage.Message, tcp bool) []byte {
			return packReply(q, func(m *dnsmessage.Message) {
				m.Truncated = !tcp
				for i := range 2000 {
					if tcp {
						m.Answers = append(m.Answers, addressRecord("vllm.test.", 10, 0, byte(i>>8), byte(i)))
					}
				}
			})
		}, "1024 addresses"},
		"cut short by TCP too": {func(q dnsmessage.Message, _ bool) []byte {
			return packReply(q, func(m *dnsmessage.Message) { m.Truncated = true })
		}, "malformed"},
		"nothing": {func(q dnsmessage.Message, _ bool) []byte { return packReply(q, func(*dnsmessage.Message) {}) }, ""},
		"no such name": {func(q dnsmessage.Message, _ bool) []byte {
			return packReply(q, func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeNameError })
		}, "nxdomain"},
		"server fails": {func(q dnsmessage.Message, _ bool) []byte {
			return packReply(q, func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeServerFailure })
		}, "refused"},
		"half a record": {func(q dnsmessage.Message, _ bool) []byte {
			out := packReply(q, func(m *dnsmessage.Message) {
				m.Answers = []dnsmessage.Resource{addressRecord("vllm.test.", 10, 0, 0, 1)}
			})
			return out[:len(out)-2]
		}, "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeNameserver(t, c.say)
			recs, err := (&dnsResolver{server: s.addr}).lookupQuestion(t.Context(), questionA)
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

// TestResolverIgnoresForgedAnswers first sends an answer with a wrong id, one to another question and a message that
// is no answer.
func TestResolverIgnoresForgedAnswers(t *testing.T) {
	var s *fakeNameserver
	ready := make(chan struct{})
	s = newFakeNameserver(t, func(q dnsmessage.Message, _ bool) []byte { return nil })
	say := func(q dnsmessage.Message, _ bool) []byte {
		<-ready
		return packReply(q, func(m *dnsmessage.Message) {
			m.Answers = []dnsmessage.Resource{addressRecord("vllm.test.", 10, 0, 0, 1)}
		})
	}
	s.makeReply.Store(&say)
	close(ready)
	id, query, err := packQuery(questionA)
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
		if isAnswerTo(packReply(other, change), id, questionA) {
			t.Errorf("an answer with another %s is heard", what)
		}
	}
	if !isAnswerTo(packReply(q, func(*dnsmessage.Message) {}), id, questionA) {
		t.Error("the right answer is not heard")
	}
	if recs, err := (&dnsResolver{server: s.addr}).lookupQuestion(t.Context(), questionA); err != nil || len(recs) != 1 {
		t.Errorf("got %v, %v", recs, err)
	}
}

func TestResolverGivesUp(t *testing.T) {
	s := newFakeNameserver(t, func(dnsmessage.Message, bool) []byte { return nil })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := (&dnsResolver{server: s.addr}).lookupQuestion(ctx, questionA)
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

func FuzzParseAnswer(f *testing.F) {
	_, query, err := packQuery(questionA)
	if err != nil {
		f.Fatal(err)
	}
	var q dnsmessage.Message
	if err := q.Unpack(query); err != nil {
		f.Fatal(err)
	}
	f.Add(packReply(q, func(m *dnsmessage.Message) {
		m.Answers = []dnsmessage.Resource{cnameRecord("vllm.test.", "b.test."), addressRecord("b.test.", 10, 0, 0, 1)}
	}))
	f.Add(packReply(q, func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeNameError }))
	f.Add(query)
	f.Fuzz(func(t *testing.T, msg []byte) {
		isAnswerTo(msg, q.ID, questionA)
		for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeSRV} {
			recs, truncated, err := parseAnswer(msg, dnsQuestion{name: questionA.name, kind: kind})
			if len(recs) > maxRecords || truncated && err == nil || err != nil && len(recs) > 0 {
				t.Fatalf("%d records, truncated %v, error %v", len(recs), truncated, err)
			}
			for _, r := range sortUnique(recs) {
				if kind == dnsmessage.TypeSRV && (r.target == "" || r.port == 0) || kind != dnsmessage.TypeSRV && !r.addr.IsValid() {
					t.Fatalf("a record that says nothing: %+v", r)
				}
			}
		}
	})
}
