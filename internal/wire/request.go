package wire

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strings"
)

// parsed is a request's head that is of the usual shape.
type parsed struct {
	method, target, host string
	url                  *url.URL
	place                url.URL // what url is where it is written plainly
	header               http.Header
	length               int64
	close                bool
}

// headEnd is the length of a head that is whole; 0 when it is not.
func headEnd(b []byte) int {
	if i := bytes.Index(b, blank); i >= 0 {
		return i + len(blank)
	}
	return 0
}

// parseRequest reads a request's head. It is nil for all that is rare, odd or wrong.
func parseRequest(s string) *parsed {
	end := strings.IndexByte(s, '\r')
	if end < 0 || s[end+1] != '\n' {
		return nil
	}
	p := &parsed{}
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
	if !ok || !strings.HasPrefix(p.target, "/") || !printable(p.target) {
		return nil
	}
	if p.header, ok = fields(s[end+2 : len(s)-2]); !ok || !p.frame() {
		return nil
	}
	if plainPath(p.target) {
		p.place.Path, p.url = p.target, &p.place
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

// plainPath says that a target is a path in which nothing stands for anything else.
func plainPath(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.' || c == '/' && (i == 0 || s[i-1] != '/')) {
			return false
		}
	}
	return true
}

// frame reads the headers that say where the request ends and for whom it is.
func (p *parsed) frame() bool {
	for _, name := range [...]string{"Transfer-Encoding", "Expect", "Upgrade", "Trailer", "Http2-Settings", "Pragma"} {
		if _, there := p.header[name]; there {
			return false
		}
	}
	hosts, lengths := p.header["Host"], p.header["Content-Length"]
	if len(hosts) != 1 || !plainHost(hosts[0]) || len(lengths) > 1 {
		return false
	}
	p.host = hosts[0]
	delete(p.header, "Host")
	if len(lengths) == 1 {
		var ok bool
		if p.length, ok = length(lengths[0]); !ok {
			return false
		}
	}
	p.close = listed(p.header["Connection"], "close")
	return true
}

// plainHost says that a Host is a name or an address and perhaps a port.
func plainHost(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || strings.IndexByte(".-:_[]", c) >= 0) {
			return false
		}
	}
	return s != ""
}

// request makes what a handler is given.
func (p *parsed) request(ctx context.Context) *http.Request {
	r := (&http.Request{}).WithContext(ctx)
	r.Method, r.URL, r.RequestURI, r.Host, r.Header = p.method, p.url, p.target, p.host, p.header
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	r.ContentLength, r.Close, r.Body = p.length, p.close, http.NoBody
	return r
}
