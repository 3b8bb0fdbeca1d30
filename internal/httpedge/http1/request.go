package http1

import (
	"bytes"
	"context"
	"net/http"
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
