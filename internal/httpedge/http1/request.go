package http1

import (
	"bytes"
	"context"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
)

// parsedRequest is the head of a request in the plain syntax that this package accepts.
type parsedRequest struct {
	method, target, host string
	url                  *url.URL
	urlStorage           url.URL // storage for url if the target is plain
	header               http.Header
	contentLength        int64
	closeAfter           bool
}

// findHeadEnd returns the length of a complete head, or 0 if it is incomplete.
func findHeadEnd(b []byte) int {
	if i := bytes.Index(b, headTerminator); i >= 0 {
		return i + len(headTerminator)
	}
	return 0
}

// parseRequestHead parses a request head. It returns nil for anything rare, unusual or malformed.
func parseRequestHead(s string) *parsedRequest {
	end := strings.IndexByte(s, '\r')
	if end < 0 || s[end+1] != '\n' {
		return nil
	}
	p := &parsedRequest{}
	var ok bool
	if p.target, ok = strings.CutSuffix(s[:end], " HTTP/1.1"); !ok {
		return nil
	}
	p.method, p.target, ok = strings.Cut(p.target, " ")
	switch p.method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return nil
	}
	if !ok || !strings.HasPrefix(p.target, "/") || !isPrintable(p.target) {
		return nil
	}
	if p.header, ok = parseHeaderLines(s[end+2 : len(s)-2]); !ok || !p.readFraming() {
		return nil
	}
	if isPlainPath(p.target) {
		p.urlStorage.Path, p.url = p.target, &p.urlStorage
		return p
	}
	var err error
	if p.url, err = url.ParseRequestURI(p.target); err != nil {
		return nil
	}
	if p.host != "" && p.url.Host != "" { // "//host/path"
		return nil
	}
	return p
}

// isPlainPath reports whether a target is a path without escapes.
func isPlainPath(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.' || c == '/' && (i == 0 || s[i-1] != '/')) {
			return false
		}
	}
	return true
}

// readFraming reads the headers that determine the length and the host of the request.
func (p *parsedRequest) readFraming() bool {
	for _, name := range [...]string{"Transfer-Encoding", "Expect", "Upgrade", "Trailer", "Http2-Settings", "Pragma"} {
		if _, there := p.header[name]; there {
			return false
		}
	}
	hosts, lengths := p.header["Host"], p.header["Content-Length"]
	if len(hosts) != 1 || !isPlainHost(hosts[0]) || len(lengths) > 1 {
		return false
	}
	p.host = hosts[0]
	delete(p.header, "Host")
	if len(lengths) == 1 {
		var ok bool
		if p.contentLength, ok = parseContentLength(lengths[0]); !ok {
			return false
		}
	}
	p.closeAfter = listContains(p.header["Connection"], "close")
	return true
}

// isPlainHost reports whether a Host is a name or an address with an optional port.
func isPlainHost(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || strings.IndexByte(".-:_[]", c) >= 0) {
			return false
		}
	}
	return s != ""
}

// toHTTPRequest builds the request for the handler.
func (p *parsedRequest) toHTTPRequest(ctx context.Context) *http.Request {
	r := (&http.Request{}).WithContext(ctx)
	r.Method, r.URL, r.RequestURI, r.Host, r.Header = p.method, p.url, p.target, p.host, p.header
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	r.ContentLength, r.Close, r.Body = p.contentLength, p.closeAfter, http.NoBody
	return r
}

// maxHeaderLines bounds the header lines of a head that is parsed here.
const maxHeaderLines = 128

// parseHeaderLines parses header lines, each with its CRLF, without the empty line at the end. It returns false
// for any unusual syntax: line breaks other than CRLF, folded lines, misplaced spaces, and invalid bytes in
// names or values.
func parseHeaderLines(s string) (http.Header, bool) {
	n := strings.Count(s, "\n")
	if n > maxHeaderLines {
		return nil, false
	}
	h := make(http.Header, n)
	values := make([]string, n) // one allocation for all values
	for s != "" {
		end := strings.IndexByte(s, '\r')
		if end < 0 || end+1 >= len(s) || s[end+1] != '\n' {
			return nil, false
		}
		line := s[:end]
		s = s[end+2:]
		colon := strings.IndexByte(line, ':')
		if colon <= 0 {
			return nil, false
		}
		value, ok := trimFieldValue(line[colon+1:])
		if !ok || !isToken(line[:colon]) {
			return nil, false
		}
		key := textproto.CanonicalMIMEHeaderKey(line[:colon])
		if old, there := h[key]; there {
			h[key] = append(old, value)
			continue
		}
		values[0] = value
		h[key] = values[:1:1]
		values = values[1:]
	}
	return h, true
}

// trimFieldValue returns a header value without surrounding space.
func trimFieldValue(s string) (string, bool) {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return "", false
		}
	}
	return s, true
}

// tokenBytes are the bytes allowed in names and methods (RFC 9110, 5.6.2).
var tokenBytes = func() (t [256]bool) {
	for c := range 256 {
		b := byte(c)
		t[c] = b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0
	}
	return t
}()

func isToken(s string) bool {
	for i := range len(s) {
		if !tokenBytes[s[i]] {
			return false
		}
	}
	return s != ""
}

// parseContentLength parses a Content-Length: digits only.
func parseContentLength(s string) (n int64, ok bool) {
	if s == "" || len(s) > 15 {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, true
}

// listContains reports whether a comma-separated header contains word, ignoring case.
func listContains(values []string, word string) bool {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.Trim(part, " \t"), word) {
				return true
			}
		}
	}
	return false
}

// isPrintable reports whether s has no spaces and no control characters, as required of hosts and targets.
func isPrintable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f {
			return false
		}
	}
	return s != ""
}

// parseTrailerNames returns the names in a Trailer header. It returns false if one is not allowed in a trailer.
func parseTrailerNames(values []string) (http.Header, bool) {
	h := http.Header{}
	for _, v := range values {
		for name := range strings.SplitSeq(v, ",") {
			name = textproto.CanonicalMIMEHeaderKey(strings.Trim(name, " \t"))
			switch name {
			case "", "Transfer-Encoding", "Content-Length", "Trailer":
				return nil, false
			}
			if !isToken(name) {
				return nil, false
			}
			h[name] = nil
		}
	}
	return h, true
}
