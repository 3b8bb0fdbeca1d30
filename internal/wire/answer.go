package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
)

// maxInterim bounds the answers 1xx before the one that counts.
const maxInterim = 5

var errInterim = errors.New("wire: too many 1xx answers")

// read reads the head of the answer.
func (x *exchange) read(req *http.Request) (*http.Response, error) {
	l := x.k.link
	for range maxInterim {
		n, err := l.head()
		x.heard = x.heard || len(l.buffered()) > 0
		if err != nil && err != errFull {
			return nil, err
		}
		var resp *http.Response
		if err == nil {
			resp = parseAnswer(&x.resp, string(l.buffered()[:n]))
		}
		switch {
		case resp == nil:
			return x.unusual(req)
		case resp.StatusCode < 200:
			reportInterim(x.watcher, resp.Header)
			l.r += n
			continue
		}
		l.r += n
		return x.answer(resp, req)
	}
	return nil, errInterim
}

var blank = []byte("\r\n\r\n")

// head waits until the end of a head is in the buffer, and is its length. errFull means that it does not fit.
func (l *link) head() (int, error) {
	seen := 0
	for {
		if i := bytes.Index(l.buffered()[seen:], blank); i >= 0 {
			return seen + i + len(blank), nil
		}
		seen = max(len(l.buffered())-len(blank)+1, 0)
		before := l.w - l.r
		if err := l.fill(); err != nil {
			if err == io.EOF && before > 0 {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
	}
}

// parseAnswer reads an answer's head into resp; nil when it is written in an unusual way, or is one of those that are rare.
func parseAnswer(resp *http.Response, s string) *http.Response {
	end := strings.IndexByte(s, '\r')
	if end < 12 || s[end+1] != '\n' || !strings.HasPrefix(s, "HTTP/1.1 ") || end > 12 && s[12] != ' ' {
		return nil
	}
	status := 0
	for _, c := range []byte(s[9:12]) {
		if c < '0' || c > '9' {
			return nil
		}
		status = status*10 + int(c-'0')
	}
	if _, ok := content(s[9:end]); !ok || status < 100 || status == http.StatusSwitchingProtocols {
		return nil
	}
	h, ok := fields(s[end+2 : len(s)-2])
	if !ok {
		return nil
	}
	*resp = http.Response{Status: s[9:end], StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h, ContentLength: -1}
	lengths, codings := h["Content-Length"], h["Transfer-Encoding"]
	switch {
	case len(lengths) > 1 || len(codings) > 1 || len(lengths) > 0 && len(codings) > 0:
		return nil
	case len(codings) == 1:
		if !strings.EqualFold(codings[0], "chunked") {
			return nil
		}
		resp.TransferEncoding = []string{"chunked"}
		delete(h, "Transfer-Encoding")
		if names := h["Trailer"]; len(names) > 0 {
			if resp.Trailer, ok = announced(names); !ok {
				return nil
			}
			delete(h, "Trailer")
		}
	case len(lengths) == 1:
		if resp.ContentLength, ok = length(lengths[0]); !ok {
			return nil
		}
	}
	if names := h["Connection"]; listed(names, "close") {
		if len(names) > 1 || !strings.EqualFold(names[0], "close") {
			return nil // it names more, of which net/http makes what it does
		}
		resp.Close = true
		delete(h, "Connection")
	}
	return resp
}

// answer makes the body.
func (x *exchange) answer(resp *http.Response, req *http.Request) (*http.Response, error) {
	resp.Request, x.close = req, resp.Close
	chunks := len(resp.TransferEncoding) > 0
	if resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified {
		resp.ContentLength, chunks = 0, false
		resp.TransferEncoding = nil
	}
	if resp.ContentLength == 0 && !chunks {
		resp.Body = http.NoBody
		whole := len(x.k.buffered()) == 0
		x.k.drop()
		x.end(whole)
		return resp, nil
	}
	x.close = x.close || resp.ContentLength < 0 && !chunks
	x.body.framed, x.body.x = framed{link: x.k.link, left: resp.ContentLength, chunks: chunks}, x
	resp.Body = &x.body
	return resp, nil
}

// unusual has net/http read the answer. The connection is not used again.
func (x *exchange) unusual(req *http.Request) (*http.Response, error) {
	l := x.k.link
	x.close = true
	limit := x.t.std.MaxResponseHeaderBytes
	if limit <= 0 {
		limit = 10 << 20
	}
	rest := &bounded{r: io.MultiReader(bytes.NewReader(bytes.Clone(l.buffered())), l.conn), left: limit}
	l.r = l.w
	l.drop()
	br := bufio.NewReader(rest)
	for range maxInterim {
		resp, err := http.ReadResponse(br, req)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
			reportInterim(x.watcher, resp.Header)
			continue
		}
		rest.left = -1
		resp.Body = &unusualBody{ReadCloser: resp.Body, x: x}
		return resp, nil
	}
	return nil, errInterim
}

// bounded reads at most left bytes; any number when it is negative.
type bounded struct {
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left < 0 {
		return b.r.Read(p)
	}
	if b.left == 0 {
		return 0, errFull
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// unusualBody closes the connection at its end.
type unusualBody struct {
	io.ReadCloser
	x *exchange
}

func (b *unusualBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		if err != io.EOF {
			err = b.x.reason(err)
		}
		b.x.end(false)
	}
	return n, err
}

func (b *unusualBody) Close() error {
	b.x.cut() // before the rest would be read
	b.x.end(false)
	return b.ReadCloser.Close()
}
