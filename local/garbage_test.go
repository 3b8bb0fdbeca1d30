package local_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/local"
)

// raw answers a chat with bytes of its own, whatever HTTP says.
func raw(t *testing.T, say func(io.Writer) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = say(conn) // one that writes for ever ends when it is hung up on
		_ = conn.Close()
	}
}

// saying says one thing.
func saying(text string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
}

// endlessly says a beginning and then repeats itself until nobody listens any more.
func endlessly(head, piece string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, head)
		for many := bytes.Repeat([]byte(piece), 1+4096/len(piece)); err == nil; {
			_, err = w.Write(many) // a connection takes no strings: each would be copied, by megabytes in a short while
		}
		return err
	}
}

const (
	okHead     = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	eventsHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	firstEvent = "25\r\ndata: {\"choices\":[{\"text\":\"first\"}]}\n\n\r\n"
)

// TestWorkerThatAnswersGarbage: whatever a worker sends, the client gets an error that says so, or an end that nobody
// takes for a whole answer; the worker is judged by it, and is not believed for ever.
func TestWorkerThatAnswersGarbage(t *testing.T) {
	for _, c := range []struct {
		name  string
		say   func(io.Writer) error
		code  int  // of the answer
		cut   bool // the client sees the connection break
		event bool // the client sees an error event at the end
	}{
		{name: "no HTTP", say: saying("SSH-2.0-OpenSSH_9.6\r\n\r\n"), code: 502},
		{name: "nothing", say: saying(""), code: 502},
		{name: "zeros", say: saying(string(make([]byte, 4096))), code: 502},
		{name: "half a head", say: saying("HTTP/1.1 200 OK\r\nContent-Ty"), code: 502},
		{name: "an absurd status", say: saying("HTTP/1.1 99999 Yes\r\n\r\n"), code: 502},
		{name: "status 000", say: saying("HTTP/1.1 000 No\r\nContent-Length: 2\r\n\r\nno"), code: 502},
		{name: "switching protocols", say: saying("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nhello"), code: 502},
		{name: "two lengths", say: saying(okHead + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"), code: 502},
		{name: "a negative length", say: saying(okHead + "Content-Length: -5\r\n\r\nhello"), code: 502},
		{name: "a length beyond all bounds", say: saying(okHead + "Content-Length: 99999999999999999999\r\n\r\nhello"), code: 502},
		{name: "a body shorter than its length", say: saying(okHead + "Content-Length: 500\r\n\r\nhello"), code: 200, cut: true},
		{name: "no body where a length was", say: saying(okHead + "Content-Length: 500\r\n\r\n"), code: 502},
		{name: "chunks of rubbish", say: saying(okHead + "Transfer-Encoding: chunked\r\n\r\nzz\r\nhello"), code: 502},
		{name: "a chunk beyond all bounds", say: saying(okHead + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nhello"), code: 502},
		{name: "rubbish after a chunk", say: saying(okHead + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n"), code: 200, cut: true},
		{name: "rubbish after an event", say: saying(eventsHead + firstEvent + "zz\r\n"), code: 200, event: true},
		{name: "an end inside an event", say: saying(eventsHead + "9\r\ndata: {\"c\r\n"), code: 200, event: true},
		{name: "headers without end", say: endlessly("HTTP/1.1 200 OK\r\n", "X-A: b\r\n"), code: 502},
		{name: "one header without end", say: endlessly("HTTP/1.1 200 OK\r\nX-A: ", "a"), code: 502},
		{name: "interim answers without end", say: endlessly("", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"), code: 502},
		{name: "trailers without end", say: endlessly(okHead+"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", "X-A: b\r\n"), code: 200, cut: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := among(t, func(c *local.Config) { c.Health.Backoff = time.Minute }, chatter(t, "w1", raw(t, c.say)))
			for i := range 2 {
				body := fmt.Sprintf(`{"model":"m","messages":[],"seed":%d}`, i) // the same request again would be one that kills workers
				resp, err := client.Post("http://"+a.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(body))
				if err != nil && c.cut {
					continue // before its head was flushed
				}
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != c.code || (err != nil) != c.cut {
					t.Fatalf("got %d %.200q, %v; want %d, cut is %v", resp.StatusCode, text, err, c.code, c.cut)
				}
				if c.code == 502 && !bytes.Contains(text, []byte(`"code":"upstream_error"`)) {
					t.Errorf("the error is %s", text)
				}
				if c.event != bytes.Contains(text, []byte(`"code":"upstream_lost"`)) {
					t.Errorf("the stream is %q", text)
				}
			}
			eventually(t, "the worker judged", func() bool {
				s := status(a, "w1")
				return s.State == admin.StateSick && strings.Contains(s.Reason, "refused")
			})
			if !idle(a) {
				t.Error("something is left in the ledger")
			}
		})
	}
}

// TestOddTextPassesAsItIs: what is not UTF-8 or no event at all is the engine's own, and is neither judged nor mended.
func TestOddTextPassesAsItIs(t *testing.T) {
	for _, text := range []string{
		"data: {\"choices\":[{\"text\":\"\xff\xfe\xc3\x28\"}]}\n\ndata: [DONE]\n\n", "data\n\n\x00\x00:\n\ndata: }{\n\ndata: [DONE]\n\n",
		strings.Repeat("\n", 4096) + "data: [DONE]\n\n", "event: error\ndata: null\n\ndata: [DONE]\n\n",
	} {
		a := among(t, nil, chatter(t, "w1", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, text)
		}))
		if resp, got := post(t, a, `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[]}`); resp.StatusCode != http.StatusOK || got != text {
			t.Errorf("%d %.200q, want %.200q", resp.StatusCode, got, text)
		}
		if s := status(a, "w1"); s.State != admin.StateReady {
			t.Errorf("the worker is %s: %s", s.State, s.Reason)
		}
	}
}

// TestEndlessAnswersCostNoMemory: bodies without an end, and lines and events without one, pass at the client's pace and
// are not gathered; when the client has had enough, the worker is hung up on.
func TestEndlessAnswersCostNoMemory(t *testing.T) {
	const enough = 16 << 20
	for name, say := range map[string]func(io.Writer) error{
		"a line":          endlessly("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: ", "x"),
		"a string":        endlessly("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"usage\":{\"x\":\"", "x"),
		"an event":        endlessly("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", "data: {\"usage\":\n"),
		"a body":          endlessly("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n", "[{\"usage\":"),
		"an error's body": endlessly("HTTP/1.1 500 Oh\r\nContent-Type: application/json\r\n\r\n", "CUDA"),
	} {
		for how, body := range map[string]string{"whole": `{"model":"m","messages":[]}`, "streamed": `{"model":"m","stream":true,"messages":[]}`} {
			t.Run(name+" "+how, func(t *testing.T) { // its agent ends with it
				ended := make(chan struct{})
				a := among(t, nil, chatter(t, "w1", raw(t, func(w io.Writer) error { defer close(ended); return say(w) })))
				before := held()
				resp, err := client.Post("http://"+a.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = resp.Body.Close() }()
				if n, err := io.CopyN(io.Discard, resp.Body, enough); err != nil {
					t.Errorf("only %d bytes passed: %v", n, err)
				}
				if grown := held() - before; grown > 8<<20 {
					t.Errorf("the heap grew by %d KiB over %d MiB of an answer", grown>>10, enough>>20)
				}
				_ = resp.Body.Close()
				eventually(t, "the worker hung up on", func() bool {
					select {
					case <-ended:
						return true
					default:
						return false
					}
				})
				eventually(t, "the ledger empty", func() bool { return idle(a) })
			})
		}
	}
}

// held is the bytes in use, without what has become garbage.
func held() int64 {
	runtime.GC()
	runtime.GC() // what passed during the first counts as in use
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return int64(live[0].Value.Uint64())
}

// spoken sends bytes and reads the status of the answer; 0 when the connection is closed without one.
func spoken(t *testing.T, a *local.Agent, request string) int {
	t.Helper()
	conn, err := net.Dial("tcp", a.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	go func() { _, _ = io.WriteString(conn, request) }() // refused before its end, it may not all be taken
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// logged keeps what is logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestHeadersAtTheirLimits: what a client's head may hold is bounded, and what is over the bound or no header at all is
// refused with 4xx before anything else; nothing of it is logged, whatever the level, and the zone goes on serving.
func TestHeadersAtTheirLimits(t *testing.T) {
	const secret = "hunter2secret"
	var log logged
	a := start(t, func(c *local.Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug - 8}))
	}, newVLLM(t, "w1"))
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			_, _ = fmt.Fprintf(&b, "X-%d: %s\r\n", i, secret)
		}
		return b.String()
	}
	for _, c := range []struct {
		name, headers string
		want          int
	}{
		{"none", "", 200},
		{"a value of 48 KiB", "X-A: " + secret + strings.Repeat("a", 48<<10) + "\r\n", 200},
		{"a value of 64 KiB", "X-A: " + secret + strings.Repeat("a", 64<<10) + "\r\n", 200},
		{"a value of 80 KiB", "X-A: " + secret + strings.Repeat("a", 80<<10) + "\r\n", 431},
		{"a name of 80 KiB", secret + strings.Repeat("a", 80<<10) + ": b\r\n", 431},
		{"2,000 headers", many(2000), 200},
		{"20,000 headers", many(20000), 431},
		{"1,000 values of one name", strings.Repeat("Session-Id: "+secret+"\r\n", 1000), 200},
		{"NUL in a value", "X-A: " + secret + "\x00b\r\n", 400},
		{"CR in a value", "X-A: " + secret + "\rX-B: c\r\n", 400},
		{"a control character in a value", "X-A: " + secret + "\x01\r\n", 400},
		{"NUL in a name", secret + "\x00: b\r\n", 400},
		{"a space before the colon", secret + " : b\r\n", 400},
		{"a line that is no header", secret + "\r\n", 400},
		{"a line that goes on", "X-A: a\r\n " + secret + "\r\n", 400},
		{"bytes that are not UTF-8", "X-A: \xff\xfe" + secret + "\r\n", 200},
		{"two lengths", "Content-Length: 3\r\n", 400},
		{"an encoding beside a length", "Transfer-Encoding: " + secret + "\r\n", 400},
		{"a deadline that is no number", "X-Spillway-Deadline-Ms: " + secret + "\r\n", 400},
		{"a class that does not exist", "X-Spillway-Class: " + secret + "\r\n", 400},
		{"a tier's header", "Spillway-Tenant: " + secret + "\r\nSpillway-Ticket: ;;;;\r\n", 200},
		{"two hosts", "Host: " + secret + "\r\n", 400},
	} {
		request := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n%s", len(whole), c.headers, whole)
		if got := spoken(t, a, request); got != c.want {
			t.Errorf("%s: answered with %d, want %d", c.name, got, c.want)
		}
	}
	if resp, text := post(t, a, whole); resp.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %d %q", resp.StatusCode, text)
	}
	if strings.Contains(log.String(), secret) {
		t.Errorf("what clients sent is logged:\n%.2000s", log.String())
	}
}
