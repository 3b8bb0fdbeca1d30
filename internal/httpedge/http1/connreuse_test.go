package http1

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestConnectionIsReusedOnlyAfterWholeExchange: a connection is not reused if bytes of a response are left, if
// the response was cut or malformed, or if the request was not sent completely. Its next response would belong
// to another request.
func TestConnectionIsReusedOnlyAfterWholeExchange(t *testing.T) {
	const foreign = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nforeign"
	for _, c := range []struct {
		name   string
		answer string // to the first request of the first connection
		long   bool   // the first request is not sent completely
		leaves bool   // the client closes the response before its end
		conns  int64  // after both requests
	}{
		{"whole, with a length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false, false, 1},
		{"whole, in chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", false, false, 1},
		{"whole, without a body", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false, false, 1},
		{"bytes after a length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + foreign, false, false, 2},
		{"bytes after chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + foreign, false, false, 2},
		{"bytes after no body", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + foreign, false, false, 2},
		{"bytes after 204", "HTTP/1.1 204 No Content\r\n\r\n" + foreign, false, false, 2},
		{"a malformed chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nx\r\n", false, false, 2},
		{"closed before its end", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", false, true, 2},
		{"a request not sent to its end", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", true, false, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var served sync.WaitGroup
			defer served.Wait()
			defer func() { _ = l.Close() }()
			var conns atomic.Int64
			end := make(chan struct{}) // of the connections
			defer close(end)
			served.Go(func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					answer := "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nown"
					first := conns.Add(1) == 1
					served.Go(func() { <-end; _ = conn.Close() })
					served.Go(func() {
						br := bufio.NewReader(conn)
						for n := 0; ; n++ {
							req, err := http.ReadRequest(br)
							if err != nil {
								return
							}
							unread := first && n == 0 && c.long
							if !unread {
								_, _ = io.Copy(io.Discard, req.Body)
							}
							if first && n == 0 {
								_, _ = io.WriteString(conn, c.answer)
							} else {
								_, _ = io.WriteString(conn, answer)
							}
							if unread {
								return
							}
						}
					})
				}
			})
			tr := newTestTransport(t, nil)
			defer tr.CloseIdleConnections()
			for i := range 2 {
				body := "x"
				if i == 0 && c.long {
					body = strings.Repeat("x", 64<<20) // more than the buffers of both sides hold
				}
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.Addr().String()+"/", strings.NewReader(body))
				resp, err := tr.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				text := ""
				if i == 0 && c.leaves {
					_, err = io.ReadFull(resp.Body, make([]byte, 2))
				} else {
					var b []byte
					b, err = io.ReadAll(resp.Body)
					text = string(b)
				}
				_ = resp.Body.Close()
				tr.mu.Lock()
				idles := tr.idleCount
				tr.mu.Unlock()
				if kept := idles > 0; i == 0 && kept != (c.conns == 1) {
					t.Fatalf("the connection of the first request is kept: %v", kept) // the second request could block forever
				}
				if i == 1 && (err != nil || text != "own") {
					t.Errorf("the second request is answered with %q, %v", text, err)
				}
			}
			if n := conns.Load(); n != c.conns {
				t.Errorf("two requests took %d connections, want %d", n, c.conns)
			}
		})
	}
}
