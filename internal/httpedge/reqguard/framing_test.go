package reqguard_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spillway-lb/spillway/internal/httpedge/reqguard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// checkLines checks a head line by line.
func checkLines(text string) (reqguard.RequestHead, reqguard.FramingFault) {
	var h reqguard.RequestHead
	for _, line := range strings.SplitAfter(text, "\n") {
		if line == "" || h.Done {
			break
		}
		if f := h.CheckLine([]byte(line)); f != "" {
			return h, f
		}
	}
	return h, ""
}

const requestLine = "POST /v1 HTTP/1.1\r\n"

func TestRequestHeadFaults(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		fault      reqguard.FramingFault
		length     int64
		chunked    bool
	}{
		{"plain", requestLine + "Host: x\r\nContent-Length: 12\r\n\r\n", "", 12, false},
		{"no body", "GET / HTTP/1.0\r\n\r\n", "", 0, false},
		{"chunked", requestLine + "transfer-encoding:\tChunked \r\n\r\n", "", 0, true},
		{"an empty line before", "\r\n" + requestLine + "\r\n", "", 0, false},
		{"an absolute target", "GET http://a/ HTTP/1.1\r\n\r\n", "", 0, false},
		{"HTTP/0.9", "GET /\r\n", reqguard.InvalidRequestLine, 0, false},
		{"HTTP/1.2", "GET / HTTP/1.2\r\n", reqguard.InvalidRequestLine, 0, false},
		{"http/1.1", "GET / http/1.1\r\n", reqguard.InvalidRequestLine, 0, false},
		{"two spaces", "GET  / HTTP/1.1\r\n", reqguard.InvalidRequestLine, 0, false},
		{"a space in the target", "GET /a b HTTP/1.1\r\n", reqguard.InvalidRequestLine, 0, false},
		{"a tab", "GET\t/ HTTP/1.1\r\n", reqguard.InvalidRequestLine, 0, false},
		{"no target", "GET HTTP/1.1\r\n", reqguard.InvalidRequestLine, 0, false},
		{"bare LF", "GET / HTTP/1.1\n", reqguard.BareLF, 0, false},
		{"bare LF in a field", requestLine + "Host: x\n\r\n", reqguard.BareLF, 0, false},
		{"bare LF at the end", requestLine + "Host: x\r\n\n", reqguard.BareLF, 0, false},
		{"CR alone", requestLine + "A: b\rTransfer-Encoding: chunked\r\n\r\n", reqguard.ControlCharacter, 0, false},
		{"NUL", requestLine + "A: b\x00\r\n", reqguard.ControlCharacter, 0, false},
		{"folded", requestLine + "A: b\r\n Content-Length: 5\r\n", reqguard.FoldedLine, 0, false},
		{"folded by a tab", requestLine + "A: b\r\n\tc\r\n", reqguard.FoldedLine, 0, false},
		{"space before the colon", requestLine + "Content-Length : 5\r\n", reqguard.InvalidFieldName, 0, false},
		{"no colon", requestLine + "Host\r\n", reqguard.InvalidFieldName, 0, false},
		{"no name", requestLine + ": x\r\n", reqguard.InvalidFieldName, 0, false},
		{"a name of another alphabet", requestLine + "Cont\xe9nt: x\r\n", reqguard.InvalidFieldName, 0, false},
		{"CL.TE", requestLine + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", reqguard.LengthAndCoding, 0, false},
		{"TE.CL", requestLine + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", reqguard.LengthAndCoding, 0, false},
		{"TE twice", requestLine + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", reqguard.InvalidCoding, 0, false},
		{"TE list", requestLine + "Transfer-Encoding: gzip, chunked\r\n", reqguard.InvalidCoding, 0, false},
		{"TE identity", requestLine + "Transfer-Encoding: identity\r\n", reqguard.InvalidCoding, 0, false},
		{"TE with a vertical tab", requestLine + "Transfer-Encoding: \x0bchunked\r\n", reqguard.ControlCharacter, 0, false},
		{"TE quoted", requestLine + "Transfer-Encoding: \"chunked\"\r\n", reqguard.InvalidCoding, 0, false},
		{"TE in HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n", reqguard.InvalidCoding, 0, false},
		{"CL twice", requestLine + "Content-Length: 5\r\nContent-Length: 5\r\n", reqguard.DuplicateLength, 0, false},
		{"CL list", requestLine + "Content-Length: 5, 5\r\n", reqguard.InvalidLength, 0, false},
		{"CL signed", requestLine + "Content-Length: +5\r\n", reqguard.InvalidLength, 0, false},
		{"CL negative", requestLine + "Content-Length: -5\r\n", reqguard.InvalidLength, 0, false},
		{"CL hexadecimal", requestLine + "Content-Length: 0x5\r\n", reqguard.InvalidLength, 0, false},
		{"CL empty", requestLine + "Content-Length: \r\n", reqguard.InvalidLength, 0, false},
		{"CL too long", requestLine + "Content-Length: 9999999999999999999\r\n", reqguard.InvalidLength, 0, false},
	} {
		h, f := checkLines(tc.text)
		if f != tc.fault || f == "" && (!h.Done || h.Length != tc.length || h.Chunked != tc.chunked) {
			t.Errorf("%s: %q, %+v; want %q, length %d, chunked %v", tc.name, f, h, tc.fault, tc.length, tc.chunked)
		}
	}
	for _, f := range reqguard.ListFaults() {
		if f.Message() == reqguard.FramingFault("x").Message() {
			t.Errorf("%s has no message of its own", f)
		}
	}
}

// Heads that pass the rules are parsed equally by net/http, or refused by it.
func FuzzRequestHead(f *testing.F) {
	f.Add([]byte(requestLine + "Host: x\r\nContent-Length: 12\r\n\r\n"))
	f.Add([]byte(requestLine + "Host: x\r\nTransfer-Encoding: chunked\r\n\r\n"))
	f.Add([]byte(requestLine + "Host: x\r\nA: b\r\n Content-Length: 3\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, fault := checkLines(string(b))
		if fault != "" || !h.Done || h.Length < 0 || bytes.HasPrefix(b, []byte("\r\n")) {
			return
		}
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(b)))
		if err != nil {
			return
		}
		if chunked := len(r.TransferEncoding) > 0; chunked != h.Chunked || !chunked && r.ContentLength != h.Length {
			t.Fatalf("%q: net/http reads length %d, chunked %v; we %d, %v", b, r.ContentLength, chunked, h.Length, h.Chunked)
		}
	})
}

// startGuardedServer serves a counting handler behind a GuardedListener.
func startGuardedServer(t *testing.T) (addr string, served *atomic.Int64, faults chan reqguard.FramingFault, calmed *atomic.Int64) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served, calmed, faults = &atomic.Int64{}, &atomic.Int64{}, make(chan reqguard.FramingFault, 100)
	s := &http.Server{Protocols: &http.Protocols{}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		n, _ := io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Read", strings.Repeat("x", int(min(n, 100))))
	})}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(&reqguard.GuardedListener{Listener: inner, OnFault: func(f reqguard.FramingFault) { faults <- f }, OnResetFlood: func() { calmed.Add(1) }})
	}()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return inner.Addr().String(), served, faults, calmed
}

// A request that violates a rule gets the response for it, however it is split, and nothing after it is served.
func TestFaultyRequestIsAnsweredAndEndsConnection(t *testing.T) {
	addr, served, faults, _ := startGuardedServer(t)
	bad := "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	good := "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 35\r\n\r\nContent-Length: 1\nA : b\r\n\r\n\nGET  /"
	for name, pieces := range map[string][]string{"whole": {good + bad}, "by the byte": strings.Split(good+bad, ""), "by request": {good, bad}} {
		before := served.Load()
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		go func() {
			for _, p := range pieces {
				if _, err := c.Write([]byte(p)); err != nil {
					return // closed by the server
				}
			}
		}()
		in := bufio.NewReader(c)
		one, err := http.ReadResponse(in, nil)
		if err != nil || one.StatusCode != 200 || one.Header.Get("X-Read") == "" {
			t.Fatalf("%s: the good one got %v (%v)", name, one, err)
		}
		two, err := http.ReadResponse(in, nil)
		if err != nil || two.StatusCode != 400 {
			t.Fatalf("%s: the bad one got %v (%v)", name, two, err)
		}
		body, _ := io.ReadAll(two.Body)
		if !bytes.Contains(body, []byte(`"code":"bad_framing"`)) || !bytes.Contains(body, []byte("send one of them")) {
			t.Errorf("%s: the answer is %s", name, body)
		}
		if _, err := in.ReadByte(); err == nil {
			t.Errorf("%s: more was answered", name)
		}
		if f := <-faults; f != reqguard.LengthAndCoding || served.Load() != before+1 {
			t.Errorf("%s: %s, and %d were served", name, f, served.Load()-before)
		}
		_ = c.Close()
	}
}

// A fault in the last line of a head is answered at once and not after a timeout.
func TestFaultInLastLineIsAnsweredAtOnce(t *testing.T) {
	addr, _, faults, _ := startGuardedServer(t)
	for _, tail := range []string{"Content-Length: 5\r\nContent-Length: 5\r\n\r\n", "\n", "A: b\n", " folded\r\n", "A\x00: b\r\n"} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\n"+tail)
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 400 {
			t.Errorf("%q got %v (%v)", tail, resp, err)
		}
		<-faults
		_ = c.Close()
	}
}

func TestStreamResetFloodEndsConnection(t *testing.T) {
	addr, _, _, calmed := startGuardedServer(t)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	var flood []byte // headers of a GET and the reset of its stream
	for id := uint32(1); id < 2*(reqguard.ResetBurst+200); id += 2 {
		n := []byte{byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}
		flood = append(append(flood, 0, 0, 4, 1, 5), n...)
		flood = append(flood, 0x82, 0x86, 0x84, 0x90) // GET, http, /, accept-encoding: gzip, deflate
		flood = append(append(append(flood, 0, 0, 4, 3, 0), n...), 0, 0, 0, 8)
	}
	if _, err := c.Write(flood); err != nil {
		t.Fatal(err)
	}
	// The server closes with a part of the flood unread, so a reset may follow its last frame.
	all, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
	if !bytes.Contains(all, []byte("\x00\x00\x08\x07\x00\x00\x00\x00\x00\x7f\xff\xff\xff\x00\x00\x00\x0b")) || calmed.Load() != 1 {
		t.Errorf("%d were calmed; it was told %x", calmed.Load(), all[max(0, len(all)-40):])
	}
}

// oneConnListener is a listener with one connection.
type oneConnListener chan net.Conn

func (o oneConnListener) Accept() (net.Conn, error) {
	if c, ok := <-o; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (o oneConnListener) Close() error   { return nil }
func (o oneConnListener) Addr() net.Addr { return &net.UnixAddr{} }

// pieceConn is a connection that is read in pieces.
type pieceConn struct {
	net.Conn
	unread    []byte
	chunkSize int
}

func (m *pieceConn) Read(p []byte) (int, error) {
	if len(m.unread) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), m.chunkSize)], m.unread)
	m.unread = m.unread[n:]
	return n, nil
}
func (m *pieceConn) Close() error                     { return nil }
func (m *pieceConn) Write(p []byte) (int, error)      { return len(p), nil }
func (m *pieceConn) SetWriteDeadline(time.Time) error { return nil }

// For any split of the bytes of a connection the same fault is found, and the bytes read until then equal those
// sent.
func FuzzGuardedConn(f *testing.F) {
	f.Add([]byte(requestLine+"Content-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nA : b\r\n"), 1, 7)
	f.Add([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"), 3, 4000)
	f.Fuzz(func(t *testing.T, b []byte, x, y int) {
		var got [2]string
		var faults [2]reqguard.FramingFault
		for i, step := range []int{x, y} {
			l := make(oneConnListener, 1)
			l <- &pieceConn{unread: b, chunkSize: 1 + (step&0xfff)%5000}
			calmed := false
			c, err := (&reqguard.GuardedListener{Listener: l, OnFault: func(f reqguard.FramingFault) { faults[i] = f }, OnResetFlood: func() { calmed = true }}).Accept()
			if err != nil {
				t.Fatal(err)
			}
			all, _ := io.ReadAll(c)
			if got[i] = string(all); calmed {
				return
			}
			if n := len(got[i]); faults[i] == "" && got[i] != string(b) || faults[i] != "" && (n < 5 || got[i][n-5:] != "\x00\r\n\r\n" || got[i][:n-5] != string(b[:n-5])) {
				t.Fatalf("%q is read as %q (%q)", b, got[i], faults[i])
			}
		}
		if got[0] != got[1] || faults[0] != faults[1] {
			t.Fatalf("%q: %q and %q, %q and %q", b, faults[0], faults[1], got[0], got[1])
		}
	})
}
