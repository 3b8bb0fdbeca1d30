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
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
)

// rawResponder answers a chat with raw bytes, valid HTTP or not.
func rawResponder(t *testing.T, write func(io.Writer) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = write(conn) // an endless writer ends when the connection is closed
		_ = conn.Close()
	}
}

// writeOnce writes one text.
func writeOnce(text string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
}

// writeForever writes head and then repeats piece until the connection is closed.
func writeForever(head, piece string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, head)
		for many := bytes.Repeat([]byte(piece), 1+4096/len(piece)); err == nil; {
			_, err = w.Write(many) // bytes, because a connection would copy each string
		}
		return err
	}
}

const (
	okHead     = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	eventsHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	firstEvent = "25\r\ndata: {\"choices\":[{\"text\":\"first\"}]}\n\n\r\n"
)

// TestMalformedWorkerAnswersEndWithAnError: for any malformed answer of a worker, the client gets a matching error,
// or an end that cannot be taken for a complete answer. The failure counts against the worker.
func TestMalformedWorkerAnswersEndWithAnError(t *testing.T) {
	for _, c := range []struct {
		name  string
		write func(io.Writer) error
		code  int  // of the answer
		cut   bool // the client sees the connection break
		event bool // the client sees an error event at the end
	}{
		{name: "no HTTP", write: writeOnce("SSH-2.0-OpenSSH_9.6\r\n\r\n"), code: 502},
		{name: "nothing", write: writeOnce(""), code: 502},
		{name: "zeros", write: writeOnce(string(make([]byte, 4096))), code: 502},
		{name: "half a head", write: writeOnce("HTTP/1.1 200 OK\r\nContent-Ty"), code: 502},
		{name: "an absurd status", write: writeOnce("HTTP/1.1 99999 Yes\r\n\r\n"), code: 502},
		{name: "status 000", write: writeOnce("HTTP/1.1 000 No\r\nContent-Length: 2\r\n\r\nno"), code: 502},
		{name: "switching protocols", write: writeOnce("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nhello"), code: 502},
		{name: "two lengths", write: writeOnce(okHead + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"), code: 502},
		{name: "a negative length", write: writeOnce(okHead + "Content-Length: -5\r\n\r\nhello"), code: 502},
		{name: "a length beyond all bounds", write: writeOnce(okHead + "Content-Length: 99999999999999999999\r\n\r\nhello"), code: 502},
		{name: "a body shorter than its length", write: writeOnce(okHead + "Content-Length: 500\r\n\r\nhello"), code: 200, cut: true},
		{name: "no body where a length was", write: writeOnce(okHead + "Content-Length: 500\r\n\r\n"), code: 502},
		{name: "malformed chunks", write: writeOnce(okHead + "Transfer-Encoding: chunked\r\n\r\nzz\r\nhello"), code: 502},
		{name: "a chunk beyond all bounds", write: writeOnce(okHead + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nhello"), code: 502},
		{name: "malformed bytes after a chunk", write: writeOnce(okHead + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n"), code: 200, cut: true},
		{name: "malformed bytes after an event", write: writeOnce(eventsHead + firstEvent + "zz\r\n"), code: 200, event: true},
		{name: "an end inside an event", write: writeOnce(eventsHead + "9\r\ndata: {\"c\r\n"), code: 200, event: true},
		{name: "headers without end", write: writeForever("HTTP/1.1 200 OK\r\n", "X-A: b\r\n"), code: 502},
		{name: "one header without end", write: writeForever("HTTP/1.1 200 OK\r\nX-A: ", "a"), code: 502},
		{name: "interim answers without end", write: writeForever("", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"), code: 502},
		{name: "trailers without end", write: writeForever(okHead+"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", "X-A: b\r\n"), code: 200, cut: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := startAgentWith(t, func(c *local.Config) { c.Health.Backoff = time.Minute }, newChatWorker(t, "w1", rawResponder(t, c.write)))
			for i := range 2 {
				body := fmt.Sprintf(`{"model":"m","messages":[],"seed":%d}`, i) // a repeated request would be refused as one that kills workers
				resp, err := testClient.Post("http://"+a.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(body))
				if err != nil && c.cut {
					continue // before its header was flushed
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
			testkit.Eventually(t, "the worker judged", func() bool {
				s := workerStatus(a, "w1")
				return s.State == admin.StateUnhealthy && strings.Contains(s.Reason, "refused")
			})
			if !isIdle(a) {
				t.Error("something is left in the ledger")
			}
		})
	}
}

// TestNonUTF8AndNonEventTextIsRelayedUnchanged: text that is not UTF-8 or not an event is relayed unchanged and not
// judged.
func TestNonUTF8AndNonEventTextIsRelayedUnchanged(t *testing.T) {
	for _, text := range []string{
		"data: {\"choices\":[{\"text\":\"\xff\xfe\xc3\x28\"}]}\n\ndata: [DONE]\n\n", "data\n\n\x00\x00:\n\ndata: }{\n\ndata: [DONE]\n\n",
		strings.Repeat("\n", 4096) + "data: [DONE]\n\n", "event: error\ndata: null\n\ndata: [DONE]\n\n",
	} {
		a := startAgentWith(t, nil, newChatWorker(t, "w1", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, text)
		}))
		if resp, got := postChat(t, a, `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[]}`); resp.StatusCode != http.StatusOK || got != text {
			t.Errorf("%d %.200q, want %.200q", resp.StatusCode, got, text)
		}
		if s := workerStatus(a, "w1"); s.State != admin.StateReady {
			t.Errorf("the worker is %s: %s", s.State, s.Reason)
		}
	}
}

// TestEndlessAnswersUseBoundedMemory: endless bodies, lines and events pass at the client's pace and are not
// buffered. When the client leaves, the connection to the worker is closed.
func TestEndlessAnswersUseBoundedMemory(t *testing.T) {
	const enough = 16 << 20
	for name, write := range map[string]func(io.Writer) error{
		"a line":          writeForever("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: ", "x"),
		"a string":        writeForever("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"usage\":{\"x\":\"", "x"),
		"an event":        writeForever("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", "data: {\"usage\":\n"),
		"a body":          writeForever("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n", "[{\"usage\":"),
		"an error's body": writeForever("HTTP/1.1 500 Oh\r\nContent-Type: application/json\r\n\r\n", "CUDA"),
	} {
		for how, body := range map[string]string{"whole": `{"model":"m","messages":[]}`, "streamed": `{"model":"m","stream":true,"messages":[]}`} {
			t.Run(name+" "+how, func(t *testing.T) { // the agent ends with the subtest
				ended := make(chan struct{})
				a := startAgentWith(t, nil, newChatWorker(t, "w1", rawResponder(t, func(w io.Writer) error { defer close(ended); return write(w) })))
				before := liveHeapBytes()
				resp, err := testClient.Post("http://"+a.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = resp.Body.Close() }()
				if n, err := io.CopyN(io.Discard, resp.Body, enough); err != nil {
					t.Errorf("only %d bytes passed: %v", n, err)
				}
				if grown := liveHeapBytes() - before; grown > 8<<20 {
					t.Errorf("the heap grew by %d KiB over %d MiB of an answer", grown>>10, enough>>20)
				}
				_ = resp.Body.Close()
				testkit.Eventually(t, "the worker hung up on", func() bool {
					select {
					case <-ended:
						return true
					default:
						return false
					}
				})
				testkit.Eventually(t, "the ledger empty", func() bool { return isIdle(a) })
			})
		}
	}
}

// liveHeapBytes returns the bytes in use, without garbage.
func liveHeapBytes() int64 {
	runtime.GC()
	runtime.GC() // the first collection still counts what became garbage during it
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return int64(live[0].Value.Uint64())
}

// sendRaw sends bytes and returns the status of the answer; 0 when the connection is closed without one.
func sendRaw(t *testing.T, a *local.Agent, request string) int {
	t.Helper()
	conn, err := net.Dial("tcp", a.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	go func() { _, _ = io.WriteString(conn, request) }() // the server may refuse it before reading all of it
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

// TestOversizedRequestHeadersAreRefused: request headers are bounded. An oversized or malformed header is refused
// with 4xx before any other processing. Its contents are not logged at any level, and the zone keeps serving.
func TestOversizedRequestHeadersAreRefused(t *testing.T) {
	const secret = "hunter2secret"
	var log testkit.LogBuffer
	a := startAgent(t, func(c *local.Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug - 8}))
	}, newFakeVLLM(t, "w1"))
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
		request := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n%s", len(nonStreamingChat), c.headers, nonStreamingChat)
		if got := sendRaw(t, a, request); got != c.want {
			t.Errorf("%s: answered with %d, want %d", c.name, got, c.want)
		}
	}
	if resp, text := postChat(t, a, nonStreamingChat); resp.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %d %q", resp.StatusCode, text)
	}
	if strings.Contains(log.String(), secret) {
		t.Errorf("what clients sent is logged:\n%.2000s", log.String())
	}
}
