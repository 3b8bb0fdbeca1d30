package wire

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
)

// counted is a body that hears of its end. Like those in memory it can be had again.
type counted struct {
	io.Reader
	closed atomic.Int32
}

func (c *counted) Close() error { c.closed.Add(1); return nil }

func long(ctx context.Context, url string, body io.Reader, n int) (*http.Request, *counted) {
	c := &counted{Reader: body}
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, url, c)
	req.ContentLength = int64(n)
	req.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("not asked for") }
	return req, c
}

// until waits for what another goroutine brings about.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never came about: %s", what)
		}
	}
}

// TestLongBodiesKeepTheirConnection: what is longer than goes with the head passes whole, again and again on one connection.
func TestLongBodiesKeepTheirConnection(t *testing.T) {
	var opened atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // all of it before the answer: whoever has sent it knows that by then
		fmt.Fprint(w, len(body), strings.Count(string(body), "x"), err)
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	tr := over(t, nil)
	for _, n := range []int{maxInline - 1, maxInline, maxInline + 1, 3 * maxInline, 1 << 20} {
		req, body := long(t.Context(), srv.URL, strings.NewReader(strings.Repeat("x", n)), n)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if want := fmt.Sprint(n, n, nil); string(got) != want {
			t.Errorf("of %d bytes came %s, want %s", n, got, want)
		}
		until(t, "the body is closed", func() bool { return body.closed.Load() == 1 })
	}
	if n := opened.Load(); n > 3 { // one, unless an answer is faster than its sender's last word
		t.Errorf("five requests took %d connections", n)
	}
}

// TestEarlyAnswerToALongBody: an answer that comes before the body was read is had, however long the body, and nothing else
// is sent on its connection.
func TestEarlyAnswerToALongBody(t *testing.T) {
	mayGo := make(chan struct{})
	var answered atomic.Int32
	url := raw(t, func(c net.Conn, br *bufio.Reader) {
		if _, err := http.ReadRequest(br); err != nil {
			return
		}
		answered.Add(1)
		_, _ = io.WriteString(c, "HTTP/1.1 413 Too Long\r\nContent-Length: 4\r\n\r\nlong")
		<-mayGo // nothing is read, and nothing closed
	})
	defer close(mayGo)
	tr := over(t, nil)
	const n = 64 << 20 // more than both sides' kernels hold
	for range 2 {
		req, body := long(t.Context(), url, xs{}, n)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != 413 || string(got) != "long" || err != nil {
			t.Errorf("%d %q (%v)", resp.StatusCode, got, err)
		}
		until(t, "the body is closed", func() bool { return body.closed.Load() == 1 })
	}
	if answered.Load() != 2 {
		t.Errorf("%d connections for two requests: one was used while a body was still being sent on it", answered.Load())
	}
}

type xs struct{}

func (xs) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// TestWhatEndsALongBody: a body that is shorter than it was said to be is no request, and one whose caller has left is sent
// no further.
func TestWhatEndsALongBody(t *testing.T) {
	var whole atomic.Int32
	url := raw(t, func(c net.Conn, br *bufio.Reader) {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err == nil {
			whole.Add(1)
		}
	})
	tr := over(t, nil)
	req, body := long(t.Context(), url, strings.NewReader(strings.Repeat("x", 2*maxInline)), 3*maxInline)
	if _, err := tr.RoundTrip(req); err == nil {
		t.Error("half a body has an answer")
	}
	until(t, "the short body is closed", func() bool { return body.closed.Load() == 1 })

	deaf := raw(t, func(c net.Conn, br *bufio.Reader) { <-t.Context().Done() })
	ctx, leave := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, leave)
	req, body = long(ctx, deaf, xs{}, 1<<40)
	if _, err := tr.RoundTrip(req); !errors.Is(err, context.Canceled) {
		t.Errorf("whoever has left hears %v", err)
	}
	until(t, "the body of who has left is closed", func() bool { return body.closed.Load() == 1 })
	if whole.Load() != 0 {
		t.Error("half a body was taken for a whole one")
	}
}

// TestFollowAfterALongBody: a stream is followed as soon as its request was sent, and not before.
func TestFollowAfterALongBody(t *testing.T) {
	if !canFollow {
		t.Skip("nothing is followed on this system")
	}
	const n = 10 * maxInline
	read := make(chan struct{})
	url := raw(t, func(c net.Conn, br *bufio.Reader) {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
		<-read
		_, _ = io.Copy(io.Discard, req.Body)
		_, _ = io.WriteString(c, "4\r\nlast\r\n0\r\n\r\n")
	})
	tr := over(t, nil)
	addr, _ := served(t, &http.Server{ErrorLog: discard, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		gate, open := io.Pipe()
		req, _ := long(r.Context(), url, io.MultiReader(strings.NewReader(strings.Repeat("x", n-1)), gate), n)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Error(err)
			return
		}
		body := resp.Body.(*responseBody)
		first, err := body.Next()
		if string(first) != "first" || err != nil {
			t.Errorf("%q (%v)", first, err)
		}
		_, _ = w.Write(first)
		p := &passer{w: w, resp: resp}
		if Follow(w, resp.Body, p) {
			t.Error("it is followed while its request is still being sent")
		}
		close(read)
		_, _ = open.Write([]byte("x"))
		until(t, "the request is sent", body.x.more.sent)
		if !Follow(w, resp.Body, p) {
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
