package http1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
)

// maxInterimResponses bounds the 1xx responses before the final one.
const maxInterimResponses = 5

var errTooManyInterim = errors.New("http1: too many 1xx answers")

// readResponseHead reads the head of the response.
func (x *exchange) readResponseHead(req *http.Request) (*http.Response, error) {
	l := x.conn.readBufConn
	for range maxInterimResponses {
		n, err := l.awaitHead()
		x.responseStarted = x.responseStarted || len(l.bufferedBytes()) > 0
		if err != nil && err != errBufferFull {
			return nil, err
		}
		var resp *http.Response
		if err == nil {
			resp = parseResponseHead(&x.resp, string(l.bufferedBytes()[:n]))
		}
		switch {
		case resp == nil:
			return x.readWithNetHTTP(req)
		case resp.StatusCode < 200:
			reportInterim(x.progress, resp.Header)
			l.r += n
			continue
		}
		l.r += n
		return x.attachBody(resp, req)
	}
	return nil, errTooManyInterim
}

var headTerminator = []byte("\r\n\r\n")

// awaitHead waits until the buffer holds a complete head and returns its length. errBufferFull means that it
// does not fit.
func (l *readBufConn) awaitHead() (int, error) {
	seen := 0
	for {
		if i := bytes.Index(l.bufferedBytes()[seen:], headTerminator); i >= 0 {
			return seen + i + len(headTerminator), nil
		}
		seen = max(len(l.bufferedBytes())-len(headTerminator)+1, 0)
		before := l.w - l.r
		if err := l.fillBuffer(); err != nil {
			if err == io.EOF && before > 0 {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
	}
}

// parseResponseHead parses a response head into resp. It returns nil for unusual syntax and for rare responses.
func parseResponseHead(resp *http.Response, s string) *http.Response {
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
	if _, ok := trimFieldValue(s[9:end]); !ok || status < 100 || status == http.StatusSwitchingProtocols {
		return nil
	}
	h, ok := parseHeaderLines(s[end+2 : len(s)-2])
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
			if resp.Trailer, ok = parseTrailerNames(names); !ok {
				return nil
			}
			delete(h, "Trailer")
		}
	case len(lengths) == 1:
		if resp.ContentLength, ok = parseContentLength(lengths[0]); !ok {
			return nil
		}
	}
	if names := h["Connection"]; listContains(names, "close") {
		if len(names) > 1 || !strings.EqualFold(names[0], "close") {
			return nil // trailer names that net/http treats specially
		}
		resp.Close = true
		delete(h, "Connection")
	}
	return resp
}

// attachBody sets the response body.
func (x *exchange) attachBody(resp *http.Response, req *http.Request) (*http.Response, error) {
	resp.Request, x.closeAfter = req, resp.Close
	chunks := len(resp.TransferEncoding) > 0
	if resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified {
		resp.ContentLength, chunks = 0, false
		resp.TransferEncoding = nil
	}
	if resp.ContentLength == 0 && !chunks {
		resp.Body = http.NoBody
		whole := len(x.conn.bufferedBytes()) == 0
		x.conn.releaseIfEmpty()
		x.finishExchange(whole)
		return resp, nil
	}
	x.closeAfter = x.closeAfter || resp.ContentLength < 0 && !chunks
	x.body.bodyDecoder, x.body.exchange = bodyDecoder{readBufConn: x.conn.readBufConn, remaining: resp.ContentLength, chunked: chunks}, x
	resp.Body = &x.body
	return resp, nil
}

// readWithNetHTTP has net/http read the response. The connection is not reused.
func (x *exchange) readWithNetHTTP(req *http.Request) (*http.Response, error) {
	l := x.conn.readBufConn
	x.closeAfter = true
	limit := x.transport.httpTransport.MaxResponseHeaderBytes
	if limit <= 0 {
		limit = 10 << 20
	}
	rest := &headLimitReader{reader: io.MultiReader(bytes.NewReader(bytes.Clone(l.bufferedBytes())), l.conn), remaining: limit}
	l.r = l.w
	l.releaseIfEmpty()
	br := bufio.NewReader(rest)
	for range maxInterimResponses {
		resp, err := http.ReadResponse(br, req)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
			reportInterim(x.progress, resp.Header)
			continue
		}
		rest.remaining = -1
		resp.Body = &fallbackBody{ReadCloser: resp.Body, exchange: x}
		return resp, nil
	}
	return nil, errTooManyInterim
}

// headLimitReader reads at most left bytes; a negative left means no limit.
type headLimitReader struct {
	reader    io.Reader
	remaining int64
}

func (b *headLimitReader) Read(p []byte) (int, error) {
	if b.remaining < 0 {
		return b.reader.Read(p)
	}
	if b.remaining == 0 {
		return 0, errBufferFull
	}
	n, err := b.reader.Read(p[:min(int64(len(p)), b.remaining)])
	b.remaining -= int64(n)
	return n, err
}

// fallbackBody closes the connection when it is closed.
type fallbackBody struct {
	io.ReadCloser
	exchange *exchange
}

func (b *fallbackBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		if err != io.EOF {
			err = b.exchange.preferContextCause(err)
		}
		b.exchange.finishExchange(false)
	}
	return n, err
}

func (b *fallbackBody) Close() error {
	b.exchange.abortExchange() // first: otherwise Close would read the rest
	b.exchange.finishExchange(false)
	return b.ReadCloser.Close()
}
