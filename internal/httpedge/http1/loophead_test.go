package http1

import (
	"bytes"
	"net/http"
	"testing"
)

// FuzzLoopHeads: what the request loop reads in a head, the parsers of the other path read in it too. A head that the loop
// accepts and they refuse would let a client or a worker smuggle a message.
func FuzzLoopHeads(f *testing.F) {
	for _, s := range []string{
		"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", "POST /v1/x HTTP/1.1\r\nHost: a\r\ncontent-length: 3\r\nConnection: keep-alive\r\nX-A: b \r\n\r\n",
		"POST //x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n",
		"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", "POST /x HTTP/1.1\r\nHost : a\r\nContent-Length: 3\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 204 No\r\nContent-Length: 3\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 200 OK\r\nConnection: a, b\r\nContent-Length: 1\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n := findHeadEnd(b)
		if n == 0 {
			return
		}
		b = b[:n]
		var h headScan
		if h.scanRequest(b) {
			p := parseRequestHead(string(b))
			switch {
			case p == nil:
				t.Fatalf("only the loop accepts %q", b)
			case p.method != http.MethodPost, p.target != string(h.path), p.contentLength != h.contentLength, p.closeAfter != h.closeAfter:
				t.Fatalf("%q is %s %s of %d bytes, close %v; on the loop %s of %d", b, p.method, p.target, p.contentLength, p.closeAfter, h.path, h.contentLength)
			}
			checkLines(t, b, &h, p.header)
		}
		if h.scanAnswer(b) {
			var resp http.Response
			p := parseResponseHead(&resp, string(b))
			switch {
			case p == nil:
				t.Fatalf("only the loop accepts %q", b)
			case p.StatusCode != h.status, p.ContentLength != h.contentLength, len(p.TransferEncoding) > 0 != h.chunked, p.Close != h.closeAfter, len(p.Trailer) > 0:
				t.Fatalf("%q is %d of %d bytes, %v, close %v; on the loop %d of %d, chunked %v, close %v", b, p.StatusCode, p.ContentLength, p.TransferEncoding, p.Close, h.status, h.contentLength, h.chunked, h.closeAfter)
			}
			checkLines(t, b, &h, p.Header)
		}
	})
}

// checkLines checks that the lines which the loop forwards are those of the parsed header, in order for each name.
func checkLines(t *testing.T, head []byte, h *headScan, want http.Header) {
	t.Helper()
	got := http.Header{}
	for i := range h.lines {
		line := &h.lines[i]
		if !bytes.HasSuffix(line.Line, []byte("\r\n")) || !bytes.HasPrefix(line.Line, line.Name) || !bytes.Contains(line.Line, line.Value) {
			t.Fatalf("%q has the line %q of %q and %q", head, line.Line, line.Name, line.Value)
		}
		if !line.Framing {
			got.Add(string(line.Name), string(line.Value))
		}
	}
	for name, values := range got {
		for i, v := range values {
			if i >= len(want[name]) || want[name][i] != v {
				t.Fatalf("%q: %s is %q, on the loop %q", head, name, want[name], values)
			}
		}
	}
	for name, values := range want {
		switch name {
		case "Content-Length", "Connection":
		default:
			if len(got[name]) != len(values) {
				t.Fatalf("%q: %s is %q, on the loop %q", head, name, values, got[name])
			}
		}
	}
}
