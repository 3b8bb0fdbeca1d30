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

	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/regional"
)

// knock sends bytes to the front door and returns the statuses of the answers until the gateway closes or falls silent
// after the expected number of them, the last answer's code and head, and whether it closed.
func knock(t *testing.T, addr string, expected int, closes bool, pieces ...string) (statuses []int, last string, head http.Header, closed bool) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	must(t, err)
	return converse(t, c, expected, closes, pieces...)
}

// converse is knock on a connection that is there.
func converse(t *testing.T, c net.Conn, expected int, closes bool, pieces ...string) (statuses []int, last string, head http.Header, closed bool) {
	t.Helper()
	defer func() { _ = c.Close() }()
	for _, p := range pieces {
		if _, err := io.WriteString(c, p); err != nil {
			break // it has closed: what it said is still to be read
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
		statuses, last, head = append(statuses, resp.StatusCode), code(string(body)), resp.Header
	}
}

// frame writes a request with the given header lines and body.
func frame(lines, body string) string {
	return "POST /v1/chat/completions HTTP/1.1\r\nHost: chat.api.example\r\nAuthorization: Bearer key-acme\r\n" + lines + "\r\n" + body
}

func length(body string) string { return fmt.Sprintf("Content-Length: %d\r\n", len(body)) }

func chunked(size, body string) string { return size + body + "\r\n0\r\n\r\n" }

func TestRawRequestsAtTheFrontDoor(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", func(c *regional.Config) { c.HeaderTimeout, c.BodyTimeout = 300*time.Millisecond, 300*time.Millisecond })
	l := w.local(g, "fra", "fra-a", reply, small("small"))
	rawRequests(t, l, func() (net.Conn, error) { return net.Dial("tcp", g.HTTPAddr().String()) })
}

// TestRawRequestsOverNetHTTP: with http.fast off the answers are the same.
func TestRawRequestsOverNetHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gateway("fra", func(c *regional.Config) {
		c.NoFast, c.HeaderTimeout, c.BodyTimeout = true, 300*time.Millisecond, 300*time.Millisecond
	})
	l := w.local(g, "fra", "fra-a", reply, small("small"))
	rawRequests(t, l, func() (net.Conn, error) { return net.Dial("tcp", g.HTTPAddr().String()) })
}

func TestRawRequestsOverTLS(t *testing.T) { rawRequestsOverTLS(t, false) }

func TestRawRequestsOverTLSAndNetHTTP(t *testing.T) { rawRequestsOverTLS(t, true) }

func rawRequestsOverTLS(t *testing.T, noFast bool) {
	t.Parallel()
	w := newWorld(t)
	files := w.frontFiles("front")
	g := w.gateway("fra", func(c *regional.Config) {
		c.NoFast = noFast
		c.HeaderTimeout, c.BodyTimeout = 2*time.Second, time.Second // the handshake takes of the first
		c.HTTPCert, c.HTTPKey = files.Cert, files.Key
	})
	l := w.local(g, "fra", "fra-a", reply, small("small"))
	rawRequests(t, l, func() (net.Conn, error) {
		return tls.Dial("tcp", g.HTTPAddr().String(), &tls.Config{InsecureSkipVerify: true})
	})
}

func TestRawRequestsBehindAProxy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gateway("fra", func(c *regional.Config) {
		c.HeaderTimeout, c.BodyTimeout = 300*time.Millisecond, 300*time.Millisecond
		c.Trusted, c.ProxyHeaders = loopback(""), true
	})
	l := w.local(g, "fra", "fra-a", reply, small("small"))
	rawRequests(t, l, func() (net.Conn, error) {
		c, err := net.Dial("tcp", g.HTTPAddr().String())
		if err == nil {
			_, err = io.WriteString(c, "PROXY TCP4 192.0.2.7 192.0.2.1 40000 80\r\n")
		}
		return c, err
	})
}

// rawRequests sends a corpus of requests, proper and not, each on a connection of its own.
func rawRequests(t *testing.T, l *local, dial func() (net.Conn, error)) {
	eventually(t, "small is served", func() bool {
		c, err := dial()
		must(t, err)
		statuses, _, _, _ := converse(t, c, 1, true, "GET /v1/models/small HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer key-acme\r\n\r\n")
		return slices.Equal(statuses, []int{200})
	})
	hexLen := fmt.Sprintf("%x", len(ask))
	smuggled := frame("X-Client-Request-Id: smuggled\r\n"+length(ask), ask)
	for _, tc := range []struct {
		name     string
		pieces   []string
		statuses []int
		code     string // of the last answer
		closed   bool
		hits     int // requests that reach the local
	}{
		{name: "a proper one", pieces: []string{frame(length(ask), ask)}, statuses: []int{200}, hits: 1},
		{name: "two on one connection", pieces: []string{frame(length(ask), ask) + frame(length(ask), ask)}, statuses: []int{200, 200}, hits: 2},
		{
			name: "chunked", pieces: []string{frame("Transfer-Encoding: chunked\r\n", chunked(hexLen+"\r\n", ask))},
			statuses: []int{200}, closed: true, hits: 1,
		},
		{
			name:     "TE.CL",
			pieces:   []string{frame("Transfer-Encoding: chunked\r\nContent-Length: 6\r\n", chunked(hexLen+"\r\n", ask)+smuggled)},
			statuses: []int{400}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "CL.TE",
			pieces:   []string{frame("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"+smuggled)},
			statuses: []int{400}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "a second request that is CL.TE",
			pieces:   []string{frame(length(ask), ask) + frame("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"+smuggled)},
			statuses: []int{200, 400}, code: openai.CodeFraming, closed: true, hits: 1,
		},
		{
			name:     "CL.TE with another case",
			pieces:   []string{frame("content-length: 6\r\ntRANSFER-eNCODING: cHUNKED\r\n", "0\r\n\r\n"+smuggled)},
			statuses: []int{400}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "TE behind a folded line",
			pieces:   []string{frame("X-A: b\r\n Transfer-Encoding: chunked\r\n"+length(ask), ask)},
			statuses: []int{400}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "TE folded in itself",
			pieces:   []string{frame("Transfer-Encoding:\r\n chunked\r\n"+length(ask), ask)},
			statuses: []int{501}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "TE with a space before its colon",
			pieces:   []string{frame("Transfer-Encoding : chunked\r\n"+length(ask), ask)},
			statuses: []int{400}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "TE with a vertical tab",
			pieces:   []string{frame("Transfer-Encoding: \x0bchunked\r\n"+length(ask), ask)},
			statuses: []int{400}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "TE of a list",
			pieces:   []string{frame("Transfer-Encoding: identity, chunked\r\n", chunked(hexLen+"\r\n", ask)+smuggled)},
			statuses: []int{501}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "TE quoted",
			pieces:   []string{frame("Transfer-Encoding: \"chunked\"\r\n", chunked(hexLen+"\r\n", ask)+smuggled)},
			statuses: []int{501}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "TE in HTTP/1.0",
			pieces:   []string{strings.Replace(frame("Transfer-Encoding: chunked\r\n", chunked(hexLen+"\r\n", ask)+smuggled), "HTTP/1.1", "HTTP/1.0", 1)},
			statuses: []int{501}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "a bare CR that hides TE",
			pieces:   []string{frame("X-A: b\rTransfer-Encoding: chunked\r\n"+length(ask), ask)},
			statuses: []int{400}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "lengths in a list",
			pieces:   []string{frame("Content-Length: 5, 5\r\n", ask)},
			statuses: []int{400}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "a length in hexadecimal",
			pieces:   []string{frame("Content-Length: 0x10\r\n", ask)},
			statuses: []int{400}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "a length that overflows",
			pieces:   []string{frame("Content-Length: 18446744073709551617\r\n", ask)},
			statuses: []int{400}, code: openai.CodeFraming, closed: true,
		},
		{
			name:     "a length that lies: what is beyond it is no request",
			pieces:   []string{frame(length(ask), ask+"0\r\n\r\n"+smuggled)},
			statuses: []int{200, 400}, code: openai.CodeFraming, closed: true, hits: 1,
		},
		{name: "HTTP/0.9", pieces: []string{"GET /v1/models\r\n"}, statuses: []int{400}, code: openai.CodeFraming, closed: true},
		{name: "a line that ends in LF", pieces: []string{strings.Replace(frame(length(ask), ask), "Host: chat.api.example\r\n", "Host: chat.api.example\n", 1)}, statuses: []int{400}, code: openai.CodeFraming, closed: true},
		{name: "a head that ends in LF", pieces: []string{"GET /healthz HTTP/1.1\r\nHost: x\r\n\n"}, statuses: []int{400}, code: openai.CodeFraming, closed: true},
		{name: "two spaces in the first line", pieces: []string{strings.Replace(frame(length(ask), ask), "POST /", "POST  /", 1)}, statuses: []int{400}, code: openai.CodeFraming, closed: true},
		{
			name:     "trailers are not passed on",
			pieces:   []string{frame("Transfer-Encoding: chunked\r\nTrailer: X-Mine\r\n", hexLen+"\r\n"+ask+"\r\n0\r\nX-Mine: 1\r\nSpillway-Tenant: root\r\n\r\n"+smuggled)},
			statuses: []int{200}, closed: true, hits: 1,
		},
		{
			name:     "a chunk extension",
			pieces:   []string{frame("Transfer-Encoding: chunked\r\n", chunked(hexLen+";a=b\r\n", ask)+smuggled)},
			statuses: []int{200}, closed: true, hits: 1,
		},
		{
			name:     "a chunk size with 0x",
			pieces:   []string{frame("Transfer-Encoding: chunked\r\n", chunked("0x"+hexLen+"\r\n", ask)+smuggled)},
			statuses: []int{400}, code: openai.CodeInvalidJSON, closed: true,
		},
		{
			name:     "a chunk that is longer than its size",
			pieces:   []string{frame("Transfer-Encoding: chunked\r\n", "5\r\n"+ask+"\r\n0\r\n\r\n"+smuggled)},
			statuses: []int{400}, code: openai.CodeInvalidJSON, closed: true,
		},
		{
			name: "TE.TE", pieces: []string{frame("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", chunked(hexLen+"\r\n", ask)+smuggled)},
			statuses: []int{501}, code: openai.CodeFraming, closed: true,
		},
		{
			name: "unknown transfer coding", pieces: []string{frame("Transfer-Encoding: xchunked\r\n"+length(ask), ask)},
			statuses: []int{501}, code: openai.CodeFraming, closed: true,
		},
		{
			name: "two lengths that differ", pieces: []string{frame(length(ask)+"Content-Length: 0\r\n", ask)},
			statuses: []int{400}, code: openai.CodeFraming, closed: true,
		},
		{name: "a length twice", pieces: []string{frame(length(ask)+length(ask), ask)}, statuses: []int{400}, code: openai.CodeFraming, closed: true},
		{name: "a signed length", pieces: []string{frame("Content-Length: +5\r\n", ask)}, statuses: []int{400}, code: openai.CodeFraming, closed: true},
		{
			name:     "bare LF after a chunk's size",
			pieces:   []string{frame("Transfer-Encoding: chunked\r\n", chunked(hexLen+"\n", ask)+smuggled)},
			statuses: []int{400}, code: openai.CodeInvalidJSON, closed: true,
		},
		{
			name:     "bare LF in a chunk extension",
			pieces:   []string{frame("Transfer-Encoding: chunked\r\n", chunked(hexLen+";a\nb\r\n", ask)+smuggled)},
			statuses: []int{400}, code: openai.CodeInvalidJSON, closed: true,
		},
		{
			name:     "a chunk size that overflows",
			pieces:   []string{frame("Transfer-Encoding: chunked\r\n", chunked("10000000000000001\r\n", ask)+smuggled)},
			statuses: []int{400}, code: openai.CodeInvalidJSON, closed: true,
		},
		{name: "space before the colon", pieces: []string{frame("Content-Length : 5\r\n", ask)}, statuses: []int{400}, code: openai.CodeFraming, closed: true},
		{name: "a header without a name", pieces: []string{frame(": x\r\n"+length(ask), ask)}, statuses: []int{400}, code: openai.CodeFraming, closed: true},
		{name: "NUL in a header", pieces: []string{frame("X-A: a\x00b\r\n"+length(ask), ask)}, statuses: []int{400}, code: openai.CodeFraming, closed: true},
		{name: "CR alone in a header", pieces: []string{frame("X-A: a\rb\r\n"+length(ask), ask)}, statuses: []int{400}, code: openai.CodeFraming, closed: true},
		{name: "the first header is folded", pieces: []string{"POST /v1/chat/completions HTTP/1.1\r\n Host: x\r\n\r\n"}, statuses: []int{400}, code: openai.CodeFraming, closed: true},
		{name: "two hosts", pieces: []string{frame("Host: other\r\n"+length(ask), ask)}, statuses: []int{400}, closed: true},
		{name: "no host", pieces: []string{"POST /v1/chat/completions HTTP/1.1\r\n\r\n"}, statuses: []int{400}, closed: true},
		{name: "a header that is too large", pieces: []string{frame("X-A: "+strings.Repeat("a", 40<<10)+"\r\n", "")}, statuses: []int{431}, closed: true},
		{name: "headers without end", pieces: []string{"POST / HTTP/1.1\r\nHost: x\r\n", "X-A: b\r\n"}, closed: true},
		{name: "a first line without end", pieces: []string{"POST /v1/chat"}, statuses: []int{400}, closed: true},
		{name: "a body that never comes", pieces: []string{frame(length(ask), ask[:20])}, statuses: []int{408}, code: openai.CodeBodyTooSlow},
		{name: "a body that never comes, from nobody", pieces: []string{"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"}, statuses: []int{401}, code: openai.CodeInvalidAPIKey},
		{
			name: "a huge declared body", pieces: []string{frame("Content-Length: 1099511627776\r\n", "")},
			statuses: []int{413}, code: openai.CodeBodyTooLarge,
		},
		{
			name: "a huge declared body that waits to be asked for", pieces: []string{frame("Content-Length: 1099511627776\r\nExpect: 100-continue\r\n", "")},
			statuses: []int{413}, code: openai.CodeBodyTooLarge, closed: true,
		},
		{
			name: "a body of 2 MiB, sent whole", pieces: []string{frame("Content-Length: 2097152\r\n", strings.Repeat("x", 2<<20))},
			statuses: []int{413}, code: openai.CodeBodyTooLarge,
		},
		{
			name:     "a chunked body of 2 MiB",
			pieces:   []string{frame("Transfer-Encoding: chunked\r\n", chunked("200000\r\n", strings.Repeat("x", 2<<20)))},
			statuses: []int{413}, code: openai.CodeBodyTooLarge, closed: true,
		},
		{
			name: "a path spelt with escapes is another path", pieces: []string{strings.Replace(frame(length(ask), ask), "/v1/chat/completions", "/v1/chat%2Fcompletions", 1)},
			statuses: []int{404}, code: openai.CodeNotFound,
		},
		{name: "a tunnel", pieces: []string{"CONNECT metadata:80 HTTP/1.1\r\nHost: metadata:80\r\n\r\n"}, statuses: []int{404}, code: openai.CodeNotFound},
		{
			name: "another host's URL", pieces: []string{strings.Replace(frame(length(ask), ask), "/v1/chat", "http://metadata/v1/chat", 1)},
			statuses: []int{200}, hits: 1,
		},
		{name: "half of HTTP/2's preface", pieces: []string{"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"}, statuses: []int{404}, code: openai.CodeNotFound, closed: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := len(l.hits)
			c, err := dial()
			must(t, err)
			statuses, last, head, closed := converse(t, c, len(tc.statuses), tc.closed, tc.pieces...)
			if !slices.Equal(statuses, tc.statuses) || last != tc.code || closed != tc.closed {
				t.Fatalf("got %v %q, closed %v; want %v %q, closed %v", statuses, last, closed, tc.statuses, tc.code, tc.closed)
			}
			if tc.code != "" && tc.code != openai.CodeFraming && head.Get("X-Request-Id") == "" {
				t.Errorf("the refusal has no request id: %v", head)
			}
			if n := len(l.hits) - before; n != tc.hits {
				t.Errorf("%d requests reached the local, want %d", n, tc.hits)
			}
		})
	}
	for len(l.hits) > 0 {
		r := <-l.hits
		if r.RequestURI != "/v1/chat/completions" || r.ContentLength != int64(len(ask)) || r.TransferEncoding != nil || r.Header.Get("X-Request-Id") == "smuggled" {
			t.Errorf("below came %s with %d bytes, %v, %v", r.RequestURI, r.ContentLength, r.TransferEncoding, r.Header)
		}
	}
}

func TestNothingOfAClientSpeaksAsATier(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", nil)
	l := w.local(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Spillway-Secret", "x")
		rw.Header().Set("Keep-Alive", "timeout=1")
		rw.Header().Set("Proxy-Connection", "close")
		reply(rw, r)
	}, small("small"))
	w.served(g, "small")
	lines := "spillway-tenant: root\r\nSPILLWAY-HOP: 1\r\nSpillway-Retries-Left: 9\r\nSpillway-Not-Started: 1\r\n" +
		"Spillway-Tenant: root\r\nX-Folded: a Spillway-Tenant: root\r\nX-Client-Request-Id: a\tSpillway-Tenant: root\r\n" +
		"Connection: keep-alive, X-Mine, Spillway-Class\r\nX-Mine: 1\r\nTE: trailers\r\nTrailer: Spillway-Tenant\r\nUpgrade: websocket\r\n" +
		"Keep-Alive: 1\r\nProxy-Authorization: Basic eA==\r\nProxy-Connection: keep-alive\r\nCookie: a=b\r\nX-Api-Key: other\r\nX-Kept: yes\r\n"
	statuses, _, head, _ := knock(t, g.HTTPAddr().String(), 1, false, frame(lines+length(ask), ask))
	if !slices.Equal(statuses, []int{200}) {
		t.Fatalf("got %v", statuses)
	}
	r := <-l.hits
	hop, err := relay.ParseHop(r.Header)
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

// What a client may write must never end a header of ours, in either direction.
func TestNoHeaderCanBeInjected(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", nil)
	l := w.local(g, "fra", "fra-a", reply, small("small"))
	w.served(g, "small")
	evil := `small\r\nSpillway-Tenant: root`
	body := `{"model":"` + evil + `","user":"` + evil + `","messages":[]}`
	for _, id := range []string{"a b", "a\tb", "a\u0080b", strings.Repeat("x", 129)} {
		statuses, last, head, _ := knock(t, g.HTTPAddr().String(), 1, false, frame("X-Client-Request-Id: "+id+"\r\n"+length(body), body))
		if !slices.Equal(statuses, []int{404}) || last != openai.CodeModelNotFound || !strings.HasPrefix(head.Get("X-Request-Id"), "req_") || head.Get("Spillway-Tenant") != "" {
			t.Errorf("id %q got %v %s %v", id, statuses, last, head)
		}
	}
	if len(l.hits) != 0 {
		t.Error("an unknown model reached the local")
	}
}

func TestFrontDoorConnectionsAreBounded(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", func(c *regional.Config) { c.MaxConnections = 8 })
	w.local(g, "fra", "fra-a", reply, small("small"))
	w.served(g, "small")
	var idle []net.Conn
	for range 40 {
		c, err := net.Dial("tcp", g.HTTPAddr().String())
		must(t, err)
		defer func() { _ = c.Close() }()
		idle = append(idle, c)
	}
	if resp, body := w.ask(g, call{key: "key-acme", body: ask}); resp.StatusCode != 200 {
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

// h2frame is one HTTP/2 frame (RFC 9113, 4.1).
func h2frame(kind, flags byte, stream uint32, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	b = append(b, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(b, payload...)
}

// h2request is a request's header block, every field literal and without indexing (RFC 7541, 6.2.2).
func h2request(fields ...string) []byte {
	var b []byte
	for i := 0; i < len(fields); i += 2 {
		b = append(b, 0, byte(len(fields[i])))
		b = append(b, fields[i]...)
		b = append(b, byte(len(fields[i+1])))
		b = append(b, fields[i+1]...)
	}
	return b
}

// A client that opens streams and resets them at once has no more of them at work than the bound, and nobody else waits.
func TestRapidResetIsBounded(t *testing.T) {
	w := newWorld(t)
	files, err := w.ca.Issue(identity.ID{TrustDomain: "test.example", Role: identity.RoleOperator, Name: "front"}, t.TempDir(), time.Hour)
	must(t, err)
	reg := prometheus.NewRegistry()
	g := w.gateway("fra", func(c *regional.Config) { c.HTTPCert, c.HTTPKey, c.Registry = files.Cert, files.Key, reg })
	w.local(g, "fra", "fra-a", reply, small("small"))
	conn, err := tls.Dial("tcp", g.HTTPAddr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	must(t, err)
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	_, err = conn.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), h2frame(4, 0, 0, nil)...))
	must(t, err)
	settings := readH2(t, conn, 4)
	streams := uint32(0)
	for i := 0; i+6 <= len(settings); i += 6 {
		if binary.BigEndian.Uint16(settings[i:]) == 3 {
			streams = binary.BigEndian.Uint32(settings[i+2:])
		}
	}
	if streams != 128 {
		t.Errorf("the gateway lets a client open %d streams at once, want 128", streams)
	}
	block := h2request(":method", "POST", ":scheme", "https", ":path", "/v1/chat/completions", ":authority", "x",
		"authorization", "Bearer key-acme", "content-length", "100")
	flood := make(chan struct{})
	go func() {
		defer close(flood)
		for id := uint32(1); id < 20_000; id += 2 {
			if _, err := conn.Write(append(h2frame(1, 4, id, block), h2frame(3, 0, id, []byte{0, 0, 0, 8})...)); err != nil {
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
		most = max(most, inFlight(t, reg))
		if status, err := health2(g); status != 200 {
			t.Fatalf("another client got %d (%v)", status, err)
		}
	}
	if most > 128 {
		t.Errorf("%v requests of one connection were at work", most)
	}
	eventually(t, "nothing is left of the flood", func() bool { return inFlight(t, reg) == 0 })
}

// inFlight reads the gauge of requests under way.
func inFlight(t *testing.T, reg *prometheus.Registry) float64 {
	t.Helper()
	families, err := reg.Gather()
	must(t, err)
	for _, f := range families {
		if f.GetName() == "spillway_regional_in_flight" {
			return f.Metric[0].GetGauge().GetValue()
		}
	}
	t.Fatal("there is no such gauge")
	return 0
}

// readH2 reads frames until one of the kind.
func readH2(t *testing.T, r io.Reader, kind byte) []byte {
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

// health2 asks for the health over TLS and HTTP/2.
func health2(g *regional.Gateway) (int, error) {
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
