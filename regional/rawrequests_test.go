package regional_test

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/regional"
)

// sendBytes sends bytes to the public listener. It returns the statuses of the responses until the gateway closes
// the connection or is silent after the expected number, the last response's code and head, and whether the
// connection was closed.
func sendBytes(t *testing.T, addr string, expected int, closes bool, pieces ...string) (statuses []int, last string, head http.Header, closed bool) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	requireNoError(t, err)
	return exchangeBytes(t, c, expected, closes, pieces...)
}

// exchangeBytes is sendBytes on an existing connection.
func exchangeBytes(t *testing.T, c net.Conn, expected int, closes bool, pieces ...string) (statuses []int, last string, head http.Header, closed bool) {
	t.Helper()
	defer func() { _ = c.Close() }()
	for _, p := range pieces {
		if _, err := io.WriteString(c, p); err != nil {
			break // closed: its response is still to be read
		}
	}
	in := bufio.NewReader(c)
	for {
		patience := 5 * time.Second
		if len(statuses) >= expected && !closes {
			patience = 150 * time.Millisecond
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return statuses, last, head, !errors.Is(err, os.ErrDeadlineExceeded)
		}
		body, _ := io.ReadAll(resp.Body)
		statuses, last, head = append(statuses, resp.StatusCode), errorCode(string(body)), resp.Header
	}
}

// rawRequest writes a request with the given header lines and body.
func rawRequest(lines, body string) string {
	return "POST /v1/chat/completions HTTP/1.1\r\nHost: chat.api.example\r\nAuthorization: Bearer key-acme\r\n" + lines + "\r\n" + body
}

func contentLengthLine(body string) string { return fmt.Sprintf("Content-Length: %d\r\n", len(body)) }

func chunkedBody(size, body string) string { return size + body + "\r\n0\r\n\r\n" }

func TestRawRequestsAtThePublicListener(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", func(c *regional.Config) { c.HeaderTimeout, c.BodyTimeout = 300*time.Millisecond, 300*time.Millisecond })
	l := w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	checkRawRequests(t, l, func() (net.Conn, error) { return net.Dial("tcp", g.HTTPAddr().String()) })
}

// TestRawRequestsOverNetHTTP: with http.fast off the responses are the same.
func TestRawRequestsOverNetHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.startGateway("fra", func(c *regional.Config) {
		c.NoFast, c.HeaderTimeout, c.BodyTimeout = true, 300*time.Millisecond, 300*time.Millisecond
	})
	l := w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	checkRawRequests(t, l, func() (net.Conn, error) { return net.Dial("tcp", g.HTTPAddr().String()) })
}

func TestRawRequestsOverTLS(t *testing.T) { checkRawRequestsOverTLS(t, false) }

func TestRawRequestsOverTLSAndNetHTTP(t *testing.T) { checkRawRequestsOverTLS(t, true) }

func checkRawRequestsOverTLS(t *testing.T, noFast bool) {
	t.Parallel()
	w := newWorld(t)
	files := w.issuePublicCert("front")
	g := w.startGateway("fra", func(c *regional.Config) {
		c.NoFast = noFast
		c.HeaderTimeout, c.BodyTimeout = 2*time.Second, time.Second // the TLS handshake uses part of the first
		c.HTTPCert, c.HTTPKey = files.Cert, files.Key
	})
	l := w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	checkRawRequests(t, l, func() (net.Conn, error) {
		return tls.Dial("tcp", g.HTTPAddr().String(), &tls.Config{InsecureSkipVerify: true})
	})
}

func TestRawRequestsBehindAProxy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.startGateway("fra", func(c *regional.Config) {
		c.HeaderTimeout, c.BodyTimeout = 300*time.Millisecond, 300*time.Millisecond
		c.Trusted, c.ProxyHeaders = trustLoopback(""), true
	})
	l := w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	checkRawRequests(t, l, func() (net.Conn, error) {
		c, err := net.Dial("tcp", g.HTTPAddr().String())
		if err == nil {
			_, err = io.WriteString(c, "PROXY TCP4 192.0.2.7 192.0.2.1 40000 80\r\n")
		}
		return c, err
	})
}

// checkRawRequests sends a corpus of valid and invalid requests, each on a connection of its own.
func checkRawRequests(t *testing.T, l *fakeLocal, dial func() (net.Conn, error)) {
	testkit.Eventually(t, "small is served", func() bool {
		c, err := dial()
		requireNoError(t, err)
		statuses, _, _, _ := exchangeBytes(t, c, 1, true, "GET /v1/models/small HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer key-acme\r\n\r\n")
		return slices.Equal(statuses, []int{200})
	})
	hexLen := fmt.Sprintf("%x", len(askBody))
	smuggled := rawRequest("X-Client-Request-Id: smuggled\r\n"+contentLengthLine(askBody), askBody)
	for _, tc := range []struct {
		name     string
		pieces   []string
		statuses []int
		code     string // of the last response
		closed   bool
		hits     int // requests that reach the local instance
	}{
		{name: "a proper one", pieces: []string{rawRequest(contentLengthLine(askBody), askBody)}, statuses: []int{200}, hits: 1},
		{name: "two on one connection", pieces: []string{rawRequest(contentLengthLine(askBody), askBody) + rawRequest(contentLengthLine(askBody), askBody)}, statuses: []int{200, 200}, hits: 2},
		{
			name: "chunked", pieces: []string{rawRequest("Transfer-Encoding: chunked\r\n", chunkedBody(hexLen+"\r\n", askBody))},
			statuses: []int{200}, closed: true, hits: 1,
		},
		{
			name:     "TE.CL",
			pieces:   []string{rawRequest("Transfer-Encoding: chunked\r\nContent-Length: 6\r\n", chunkedBody(hexLen+"\r\n", askBody)+smuggled)},
			statuses: []int{400}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "CL.TE",
			pieces:   []string{rawRequest("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"+smuggled)},
			statuses: []int{400}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "a second request that is CL.TE",
			pieces:   []string{rawRequest(contentLengthLine(askBody), askBody) + rawRequest("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"+smuggled)},
			statuses: []int{200, 400}, code: openai.CodeFraming, closed: true, hits: 1,
		},
		{
			name:     "CL.TE with another case",
			pieces:   []string{rawRequest("content-length: 6\r\ntRANSFER-eNCODING: cHUNKED\r\n", "0\r\n\r\n"+smuggled)},
			statuses: []int{400}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "TE behind a folded line",
			pieces:   []string{rawRequest("X-A: b\r\n Transfer-Encoding: chunked\r\n"+contentLengthLine(askBody), askBody)},
			statuses: []int{400}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "TE folded in itself",
			pieces:   []string{rawRequest("Transfer-Encoding:\r\n chunked\r\n"+contentLengthLine(askBody), askBody)},
			statuses: []int{501}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "TE with a space before its colon",
			pieces:   []string{rawRequest("Transfer-Encoding : chunked\r\n"+contentLengthLine(askBody), askBody)},
			statuses: []int{400}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "TE with a vertical tab",
			pieces:   []string{rawRequest("Transfer-Encoding: \x0bchunked\r\n"+contentLengthLine(askBody), askBody)},
			statuses: []int{400}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "TE of a list",
			pieces:   []string{rawRequest("Transfer-Encoding: identity, chunked\r\n", chunkedBody(hexLen+"\r\n", askBody)+smuggled)},
			statuses: []int{501}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "TE quoted",
			pieces:   []string{rawRequest("Transfer-Encoding: \"chunked\"\r\n", chunkedBody(hexLen+"\r\n", askBody)+smuggled)},
			statuses: []int{501}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "TE in HTTP/1.0",
			pieces:   []string{strings.Replace(rawRequest("Transfer-Encoding: chunked\r\n", chunkedBody(hexLen+"\r\n", askBody)+smuggled), "HTTP/1.1", "HTTP/1.0", 1)},
			statuses: []int{501}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "a bare CR that hides TE",
			pieces:   []string{rawRequest("X-A: b\rTransfer-Encoding: chunked\r\n"+contentLengthLine(askBody), askBody)},
			statuses: []int{400}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "lengths in a list",
			pieces:   []string{rawRequest("Content-Length: 5, 5\r\n", askBody)},
			statuses: []int{400}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "a length in hexadecimal",
			pieces:   []string{rawRequest("Content-Length: 0x10\r\n", askBody)},
			statuses: []int{400}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "a length that overflows",
			pieces:   []string{rawRequest("Content-Length: 18446744073709551617\r\n", askBody)},
			statuses: []int{400}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "a length that lies: what is beyond it is no request",
			pieces:   []string{rawRequest(contentLengthLine(askBody), askBody+"0\r\n\r\n"+smuggled)},
			statuses: []int{200, 400}, code: openai.CodeFraming, closed: true, hits: 1,
		},
		{name: "HTTP/0.9", pieces: []string{"GET /v1/models\r\n"}, statuses: []int{400}, code: openai.CodeFraming, closed: true},
		{name: "a line that ends in LF", pieces: []string{strings.Replace(rawRequest(contentLengthLine(askBody), askBody), "Host: chat.api.example\r\n", "Host: chat.api.example\n", 1)}, statuses: []int{400}, code: openai.CodeFraming, closed: true},
		{name: "a head that ends in LF", pieces: []string{"GET /healthz HTTP/1.1\r\nHost: x\r\n\n"}, statuses: []int{400}, code: openai.CodeFraming, closed: true},
		{name: "two spaces in the first line", pieces: []string{strings.Replace(rawRequest(contentLengthLine(askBody), askBody), "POST /", "POST  /", 1)}, statuses: []int{400}, code: openai.CodeFraming, closed: true},
		{
			name:     "trailers are not passed on",
			pieces:   []string{rawRequest("Transfer-Encoding: chunked\r\nTrailer: X-Mine\r\n", hexLen+"\r\n"+askBody+"\r\n0\r\nX-Mine: 1\r\nSpillway-Tenant: root\r\n\r\n"+smuggled)},
			statuses: []int{200}, closed: true, hits: 1,
		},
		{
			name:     "a chunk extension",
			pieces:   []string{rawRequest("Transfer-Encoding: chunked\r\n", chunkedBody(hexLen+";a=b\r\n", askBody)+smuggled)},
			statuses: []int{200}, closed: true, hits: 1,
		},
		{
			name:     "a chunk size with 0x",
			pieces:   []string{rawRequest("Transfer-Encoding: chunked\r\n", chunkedBody("0x"+hexLen+"\r\n", askBody)+smuggled)},
			statuses: []int{400}, code: openai.CodeInvalidJSON, closed: true,
		},
		{
			name:     "a chunk that is longer than its size",
			pieces:   []string{rawRequest("Transfer-Encoding: chunked\r\n", "5\r\n"+askBody+"\r\n0\r\n\r\n"+smuggled)},
			statuses: []int{400}, code: openai.CodeInvalidJSON, closed: true,
		},
		{
			name: "TE.TE", pieces: []string{rawRequest("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", chunkedBody(hexLen+"\r\n", askBody)+smuggled)},
			statuses: []int{501}, code: openai.CodeFraming, closed: true,
		},
		{
			name: "unknown transfer coding", pieces: []string{rawRequest("Transfer-Encoding: xchunked\r\n"+contentLengthLine(askBody), askBody)},
			statuses: []int{501}, code: openai.CodeFraming, closed: true,
		},
		{
			name: "two lengths that differ", pieces: []string{rawRequest(contentLengthLine(askBody)+"Content-Length: 0\r\n", askBody)},
			statuses: []int{400}, code: openai.CodeFraming, closed: true,
		},
		{name: "a length twice", pieces: []string{rawRequest(contentLengthLine(askBody)+contentLengthLine(askBody), askBody)}, statuses: []int{400}, code: openai.CodeFraming, closed: true},
		{name: "a signed length", pieces: []string{rawRequest("Content-Length: +5\r\n", askBody)}, statuses: []int{400}, code: openai.CodeFraming, closed: true},
		{
			name:     "bare LF after a chunk's size",
			pieces:   []string{rawRequest("Transfer-Encoding: chunked\r\n", chunkedBody(hexLen+"\n", askBody)+smuggled)},
			statuses: []int{400}, code: openai.CodeInvalidJSON, closed: true,
		},
		{
			name:     "bare LF in a chunk extension",
			pieces:   []string{rawRequest("Transfer-Encoding: chunked\r\n", chunkedBody(hexLen+";a\nb\r\n", askBody)+smuggled)},
			statuses: []int{400}, code: openai.CodeInvalidJSON, closed: true,
		},
		{
			name:     "a chunk size that overflows",
			pieces:   []string{rawRequest("Transfer-Encoding: chunked\r\n", chunkedBody("10000000000000001\r\n", askBody)+smuggled)},
			statuses: []int{400}, code: openai.CodeInvalidJSON, closed: true,
		},
		{name: "space before the colon", pieces: []string{rawRequest("Content-Length : 5\r\n", askBody)}, statuses: []int{400}, code: openai.CodeFraming, closed: true},
		{name: "a header without a name", pieces: []string{rawRequest(": x\r\n"+contentLengthLine(askBody), askBody)}, statuses: []int{400}, code: openai.CodeFraming, closed: true},
		{name: "NUL in a header", pieces: []string{rawRequest("X-A: a\x00b\r\n"+contentLengthLine(askBody), askBody)}, statuses: []int{400}, code: openai.CodeFraming, closed: true},
		{name: "CR alone in a header", pieces: []string{rawRequest("X-A: a\rb\r\n"+contentLengthLine(askBody), askBody)}, statuses: []int{400}, code: openai.CodeFraming, closed: true},
		{name: "the first header is folded", pieces: []string{"POST /v1/chat/completions HTTP/1.1\r\n Host: x\r\n\r\n"}, statuses: []int{400}, code: openai.CodeFraming, closed: true},
		{name: "two hosts", pieces: []string{rawRequest("Host: other\r\n"+contentLengthLine(askBody), askBody)}, statuses: []int{400}, closed: true},
		{name: "no host", pieces: []string{"POST /v1/chat/completions HTTP/1.1\r\n\r\n"}, statuses: []int{400}, closed: true},
		{name: "a header that is too large", pieces: []string{rawRequest("X-A: "+strings.Repeat("a", 40<<10)+"\r\n", "")}, statuses: []int{431}, closed: true},
		{name: "headers without end", pieces: []string{"POST / HTTP/1.1\r\nHost: x\r\n", "X-A: b\r\n"}, closed: true},
		{name: "a first line without end", pieces: []string{"POST /v1/chat"}, statuses: []int{400}, closed: true},
		{name: "a body that never comes", pieces: []string{rawRequest(contentLengthLine(askBody), askBody[:20])}, statuses: []int{408}, code: openai.CodeBodyTooSlow},
		{name: "a body that never comes, from nobody", pieces: []string{"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"}, statuses: []int{401}, code: openai.CodeInvalidAPIKey},
		{
			name: "a huge declared body", pieces: []string{rawRequest("Content-Length: 1099511627776\r\n", "")},
			statuses: []int{413}, code: openai.CodeBodyTooLarge,
		},
		{
			name: "a huge declared body that waits to be asked for", pieces: []string{rawRequest("Content-Length: 1099511627776\r\nExpect: 100-continue\r\n", "")},
			statuses: []int{413}, code: openai.CodeBodyTooLarge, closed: true,
		},
		{
			name: "a body of 2 MiB, sent whole", pieces: []string{rawRequest("Content-Length: 2097152\r\n", strings.Repeat("x", 2<<20))},
			statuses: []int{413}, code: openai.CodeBodyTooLarge,
		},
		{
			name:     "a chunked body of 2 MiB",
			pieces:   []string{rawRequest("Transfer-Encoding: chunked\r\n", chunkedBody("200000\r\n", strings.Repeat("x", 2<<20)))},
			statuses: []int{413}, code: openai.CodeBodyTooLarge, closed: true,
		},
		{
			name: "a path spelt with escapes is another path", pieces: []string{strings.Replace(rawRequest(contentLengthLine(askBody), askBody), "/v1/chat/completions", "/v1/chat%2Fcompletions", 1)},
			statuses: []int{404}, code: openai.CodeNotFound,
		},
		{name: "a tunnel", pieces: []string{"CONNECT metadata:80 HTTP/1.1\r\nHost: metadata:80\r\n\r\n"}, statuses: []int{404}, code: openai.CodeNotFound},
		{
			name: "another host's URL", pieces: []string{strings.Replace(rawRequest(contentLengthLine(askBody), askBody), "/v1/chat", "http://metadata/v1/chat", 1)},
			statuses: []int{200}, hits: 1,
		},
		{name: "half of HTTP/2's preface", pieces: []string{"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"}, statuses: []int{404}, code: openai.CodeNotFound, closed: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := len(l.requests)
			c, err := dial()
			requireNoError(t, err)
			statuses, last, head, closed := exchangeBytes(t, c, len(tc.statuses), tc.closed, tc.pieces...)
			if !slices.Equal(statuses, tc.statuses) || last != tc.code || closed != tc.closed {
				t.Fatalf("got %v %q, closed %v; want %v %q, closed %v", statuses, last, closed, tc.statuses, tc.code, tc.closed)
			}
			if tc.code != "" && tc.code != openai.CodeFraming && head.Get("X-Request-Id") == "" {
				t.Errorf("the refusal has no request id: %v", head)
			}
			if n := len(l.requests) - before; n != tc.hits {
				t.Errorf("%d requests reached the local, want %d", n, tc.hits)
			}
		})
	}
	for len(l.requests) > 0 {
		r := <-l.requests
		if r.RequestURI != "/v1/chat/completions" || r.ContentLength != int64(len(askBody)) || r.TransferEncoding != nil || r.Header.Get("X-Request-Id") == "smuggled" {
			t.Errorf("below came %s with %d bytes, %v, %v", r.RequestURI, r.ContentLength, r.TransferEncoding, r.Header)
		}
	}
}

func TestClientCannotForgeTierHeaders(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	l := w.startLocal(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Spillway-Secret", "x")
		rw.Header().Set("Keep-Alive", "timeout=1")
		rw.Header().Set("Proxy-Connection", "close")
		replyCompletion(rw, r)
	}, roomyModel("small"))
	w.waitUntilServed(g, "small")
	lines := "spillway-tenant: root\r\nSPILLWAY-HOP: 1\r\nSpillway-Retries-Left: 9\r\nSpillway-Not-Started: 1\r\n" +
		"Spillway-Tenant: root\r\nX-Folded: a Spillway-Tenant: root\r\nX-Client-Request-Id: a\tSpillway-Tenant: root\r\n" +
		"Connection: keep-alive, X-Mine, Spillway-Class\r\nX-Mine: 1\r\nTE: trailers\r\nTrailer: Spillway-Tenant\r\nUpgrade: websocket\r\n" +
		"Keep-Alive: 1\r\nProxy-Authorization: Basic eA==\r\nProxy-Connection: keep-alive\r\nCookie: a=b\r\nX-Api-Key: other\r\nX-Kept: yes\r\n"
	statuses, _, head, _ := sendBytes(t, g.HTTPAddr().String(), 1, false, rawRequest(lines+contentLengthLine(askBody), askBody))
	if !slices.Equal(statuses, []int{200}) {
		t.Fatalf("got %v", statuses)
	}
	r := <-l.requests
	hop, err := forward.ParseHop(r.Header)
	if err != nil || hop.Tenant != "acme" || hop.Hops != 0 || hop.RetriesLeft != 1 || !strings.HasPrefix(hop.RequestID, "req_") {
		t.Errorf("hop is %+v (%v)", hop, err)
	}
	if r.Header.Get("X-Kept") != "yes" || r.Header.Get("X-Folded") != "a Spillway-Tenant: root" {
		t.Errorf("headers of its own were lost or split: %v", r.Header)
	}
	for _, gone := range []string{"X-Mine", "Te", "Trailer", "Upgrade", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "Cookie", "X-Api-Key", "Authorization", "Connection", "Spillway-Not-Started"} {
		if v, there := r.Header[gone]; there {
			t.Errorf("%s: %q was passed on", gone, v)
		}
	}
	for _, gone := range []string{"Spillway-Secret", "Keep-Alive", "Proxy-Connection"} {
		if v, there := head[gone]; there {
			t.Errorf("%s: %q reached the client", gone, v)
		}
	}
}

// Input of a client must never end a header that the gateway writes, in either direction.
func TestClientInputCannotInjectHeaders(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	l := w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	evil := `small\r\nSpillway-Tenant: root`
	body := `{"model":"` + evil + `","user":"` + evil + `","messages":[]}`
	for _, id := range []string{"a b", "a\tb", "a\u0080b", strings.Repeat("x", 129)} {
		statuses, last, head, _ := sendBytes(t, g.HTTPAddr().String(), 1, false, rawRequest("X-Client-Request-Id: "+id+"\r\n"+contentLengthLine(body), body))
		if !slices.Equal(statuses, []int{404}) || last != openai.CodeModelNotFound || !strings.HasPrefix(head.Get("X-Request-Id"), "req_") || head.Get("Spillway-Tenant") != "" {
			t.Errorf("id %q got %v %s %v", id, statuses, last, head)
		}
	}
	if len(l.requests) != 0 {
		t.Error("an unknown model reached the local")
	}
}

func TestPublicListenerConnectionsAreBounded(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", func(c *regional.Config) { c.MaxConnections = 8 })
	w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	var idle []net.Conn
	for range 40 {
		c, err := net.Dial("tcp", g.HTTPAddr().String())
		requireNoError(t, err)
		defer func() { _ = c.Close() }()
		idle = append(idle, c)
	}
	if resp, body := w.getAnswer(g, clientCall{key: "key-acme", body: askBody}); resp.StatusCode != 200 {
		t.Fatalf("beside 40 idle connections a client got %d %s", resp.StatusCode, body)
	}
	closed := 0
	for _, c := range idle {
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			closed++
		}
	}
	if closed < 32 {
		t.Errorf("%d of 40 idle connections were closed, want 32", closed)
	}
}

// appendH2Frame appends one HTTP/2 frame (RFC 9113, 4.1).
func appendH2Frame(kind, flags byte, stream uint32, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	b = append(b, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(b, payload...)
}

// encodeH2Headers encodes a request's header block with literal fields without indexing (RFC 7541, 6.2.2).
func encodeH2Headers(fields ...string) []byte {
	var b []byte
	for i := 0; i < len(fields); i += 2 {
		b = append(b, 0, byte(len(fields[i])))
		b = append(b, fields[i]...)
		b = append(b, byte(len(fields[i+1])))
		b = append(b, fields[i+1]...)
	}
	return b
}

// A client that opens streams and resets them at once has no more of them in flight than the bound, and other
// clients do not wait.
func TestRapidResetIsBounded(t *testing.T) {
	w := newWorld(t)
	files, err := w.ca.IssueCert(identity.ID{TrustDomain: "test.example", Role: identity.RoleOperator, Name: "front"}, t.TempDir(), time.Hour)
	requireNoError(t, err)
	reg := prometheus.NewRegistry()
	g := w.startGateway("fra", func(c *regional.Config) { c.HTTPCert, c.HTTPKey, c.Registry = files.Cert, files.Key, reg })
	w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	conn, err := tls.Dial("tcp", g.HTTPAddr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	requireNoError(t, err)
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, err = conn.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), appendH2Frame(4, 0, 0, nil)...))
	requireNoError(t, err)
	settings := readH2Frame(t, conn, 4)
	streams := uint32(0)
	for i := 0; i+6 <= len(settings); i += 6 {
		if binary.BigEndian.Uint16(settings[i:]) == 3 {
			streams = binary.BigEndian.Uint32(settings[i+2:])
		}
	}
	if streams != 128 {
		t.Errorf("the gateway lets a client open %d streams at once, want 128", streams)
	}
	block := encodeH2Headers(":method", "POST", ":scheme", "https", ":path", "/v1/chat/completions", ":authority", "x",
		"authorization", "Bearer key-acme", "content-length", "100")
	flood := make(chan struct{})
	go func() {
		defer close(flood)
		for id := uint32(1); id < 20_000; id += 2 {
			if _, err := conn.Write(append(appendH2Frame(1, 4, id, block), appendH2Frame(3, 0, id, []byte{0, 0, 0, 8})...)); err != nil {
				return
			}
		}
	}()
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	most := 0.0
	for over := false; !over; {
		select {
		case <-flood:
			over = true
		default:
		}
		most = max(most, readInFlight(t, reg))
		if status, err := getHealthOverH2(g); status != 200 {
			t.Fatalf("another client got %d (%v)", status, err)
		}
	}
	if most > 128 {
		t.Errorf("%v requests of one connection were at work", most)
	}
	testkit.Eventually(t, "nothing is left of the flood", func() bool { return readInFlight(t, reg) == 0 })
}

// readInFlight reads the gauge of requests under way.
func readInFlight(t *testing.T, reg *prometheus.Registry) float64 {
	t.Helper()
	families, err := reg.Gather()
	requireNoError(t, err)
	for _, f := range families {
		if f.GetName() == "spillway_regional_in_flight" {
			return f.Metric[0].GetGauge().GetValue()
		}
	}
	t.Fatal("there is no such gauge")
	return 0
}

// readH2Frame reads frames until one of the given kind.
func readH2Frame(t *testing.T, r io.Reader, kind byte) []byte {
	t.Helper()
	for {
		var head [9]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			t.Fatalf("waiting for a frame of kind %d: %v", kind, err)
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(r, payload); err != nil {
			t.Fatalf("reading a frame: %v", err)
		}
		if head[3] == kind && head[4]&1 == 0 {
			return payload
		}
	}
}

// getHealthOverH2 requests the health path over TLS and HTTP/2.
func getHealthOverH2(g *regional.Gateway) (int, error) {
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get("https://" + g.HTTPAddr().String() + "/healthz")
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.ProtoMajor != 2 {
		return 0, fmt.Errorf("spoke %s", resp.Proto)
	}
	return resp.StatusCode, nil
}
