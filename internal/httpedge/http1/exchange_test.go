package http1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/testkit"
)

// closeCountingBody is a body that counts its Close calls. Like bodies in memory it can be rewound.
type closeCountingBody struct {
	io.Reader
	closed atomic.Int32
}

func (c *closeCountingBody) Close() error { c.closed.Add(1); return nil }

func newLongRequest(ctx context.Context, url string, body io.Reader, n int) (*http.Request, *closeCountingBody) {
	c := &closeCountingBody{Reader: body}
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, url, c)
	req.ContentLength = int64(n)
	req.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("not asked for") }
	return req, c
}

// TestLongBodiesReuseOneConnection: bodies longer than maxInlineBody pass whole, repeatedly on one connection.
func TestLongBodiesReuseOneConnection(t *testing.T) {
	var opened atomic.Int32
	sent := make(sentSignal, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		<-sent // the sender has then finished before the response ends, and keeps the connection
		fmt.Fprint(w, len(body), strings.Count(string(body), "x"), err)
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	tr := newTestTransport(t, nil)
	for _, n := range []int{maxInlineBody - 1, maxInlineBody, maxInlineBody + 1, 3 * maxInlineBody, 1 << 20} {
		req, body := newLongRequest(t.Context(), srv.URL, strings.NewReader(strings.Repeat("x", n)), n)
		resp, err := tr.roundTrip(req, sent)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if want := fmt.Sprint(n, n, nil); string(got) != want {
			t.Errorf("of %d bytes came %s, want %s", n, got, want)
		}
		testkit.Eventually(t, "the body is closed", func() bool { return body.closed.Load() == 1 })
	}
	if n := opened.Load(); n != 1 {
		t.Errorf("five requests took %d connections", n)
	}
}

// sentSignal has an element for each request that was sent.
type sentSignal chan struct{}

func (s sentSignal) WroteRequest()          { s <- struct{}{} }
func (s sentSignal) GotInterim(http.Header) {}

// TestEarlyAnswerToLongBodyIsReceived: a response that comes before the body was read is received for any body
// length, and its connection is not reused.
func TestEarlyAnswerToLongBodyIsReceived(t *testing.T) {
	mayGo := make(chan struct{})
	var answered atomic.Int32
	url := startRawServer(t, func(c net.Conn, br *bufio.Reader) {
		if _, err := http.ReadRequest(br); err != nil {
			return
		}
		answered.Add(1)
		_, _ = io.WriteString(c, "HTTP/1.1 413 Too Long\r\nContent-Length: 4\r\n\r\nlong")
		<-mayGo // nothing is read or closed until then
	})
	defer close(mayGo)
	tr := newTestTransport(t, nil)
	const n = 64 << 20 // more than the kernel buffers of both sides hold
	for range 2 {
		req, body := newLongRequest(t.Context(), url, endlessReader{}, n)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != 413 || string(got) != "long" || err != nil {
			t.Errorf("%d %q (%v)", resp.StatusCode, got, err)
		}
		testkit.Eventually(t, "the body is closed", func() bool { return body.closed.Load() == 1 })
	}
	if answered.Load() != 2 {
		t.Errorf("%d connections for two requests: one was used while a body was still being sent on it", answered.Load())
	}
}

type endlessReader struct{}

func (endlessReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// TestShortOrAbandonedLongBodyFails: a body shorter than its Content-Length fails the request. An abandoned
// body is not sent further.
func TestShortOrAbandonedLongBodyFails(t *testing.T) {
	var whole atomic.Int32
	url := startRawServer(t, func(c net.Conn, br *bufio.Reader) {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err == nil {
			whole.Add(1)
		}
	})
	tr := newTestTransport(t, nil)
	req, body := newLongRequest(t.Context(), url, strings.NewReader(strings.Repeat("x", 2*maxInlineBody)), 3*maxInlineBody)
	if _, err := tr.RoundTrip(req); err == nil {
		t.Error("half a body got a response")
	}
	testkit.Eventually(t, "the short body is closed", func() bool { return body.closed.Load() == 1 })

	neverReading := startRawServer(t, func(c net.Conn, br *bufio.Reader) { <-t.Context().Done() })
	ctx, leave := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, leave)
	req, body = newLongRequest(ctx, neverReading, endlessReader{}, 1<<40)
	if _, err := tr.RoundTrip(req); !errors.Is(err, context.Canceled) {
		t.Errorf("an abandoned request fails with %v, want context.Canceled", err)
	}
	testkit.Eventually(t, "the body of the abandoned request is closed", func() bool { return body.closed.Load() == 1 })
	if whole.Load() != 0 {
		t.Error("half a body was accepted as complete")
	}
}

// TestStreamIsDetachedOnlyAfterItsRequestWasSent: a stream is detached once its request was sent, not before.
func TestStreamIsDetachedOnlyAfterItsRequestWasSent(t *testing.T) {
	if !canDetach {
		t.Skip("nothing is followed on this system")
	}
	const n = 10 * maxInlineBody
	read := make(chan struct{})
	url := startRawServer(t, func(c net.Conn, br *bufio.Reader) {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
		<-read
		_, _ = io.Copy(io.Discard, req.Body)
		_, _ = io.WriteString(c, "4\r\nlast\r\n0\r\n\r\n")
	})
	tr := newTestTransport(t, nil)
	addr, _ := startServer(t, &http.Server{ErrorLog: discardLog, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		gate, open := io.Pipe()
		req, _ := newLongRequest(r.Context(), url, io.MultiReader(strings.NewReader(strings.Repeat("x", n-1)), gate), n)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Error(err)
			return
		}
		body := resp.Body.(*responseBody)
		first, err := body.NextChunk()
		if string(first) != "first" || err != nil {
			t.Errorf("%q (%v)", first, err)
		}
		_, _ = w.Write(first)
		p := &recordingHandler{writer: w, resp: resp}
		if DetachStream(w, resp.Body, p) {
			t.Error("it is followed while its request is still being sent")
		}
		close(read)
		_, _ = open.Write([]byte("x"))
		testkit.Eventually(t, "the request is sent", body.exchange.bodyRest.isSent)
		if !DetachStream(w, resp.Body, p) {
			t.Error("it is not followed when its request was sent")
		}
	})}, false)
	resp, err := http.Get("http://" + addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); string(got) != "firstlast" || err != nil {
		t.Errorf("%q (%v)", got, err)
	}
}
