package relay

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spillway-lb/spillway/internal/openai"
)

// held is the body of a request that is in memory, and where the request goes.
type held struct {
	bytes.Reader
	url   url.URL
	bytes []byte
}

// worded is the body of a request of which a part is written anew.
type worded struct {
	*openai.WordingReader
	of *openai.Wording
}

// Close does nothing.
func (worded) Close() error { return nil }

func (w worded) again() (io.ReadCloser, error) { return worded{w.of.Reader(), w.of}, nil }

// carry makes w the body of a request.
func carry(r *http.Request, w *openai.Wording) {
	body := worded{w.Reader(), w}
	r.Body, r.GetBody, r.ContentLength = body, body.again, int64(w.Len())
}

// Close does nothing.
func (h *held) Close() error { return nil }

// again is the body from its beginning.
func (h *held) again() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(h.bytes)), nil }

// request is http.NewRequestWithContext for what is sent all the time: a body in memory, to an address of the usual kind.
// headers is how many there will be, about.
func request(ctx context.Context, method, to string, body []byte, headers int) (*http.Request, error) {
	h := &held{bytes: body}
	if !plainURL(to, &h.url) {
		return http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	}
	r := &http.Request{
		Method: method, URL: &h.url, Host: h.url.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header, headers), Body: http.NoBody, GetBody: noBody,
	}
	if len(body) > 0 {
		h.Reset(body)
		r.Body, r.GetBody, r.ContentLength = h, h.again, int64(len(body))
	}
	return r.WithContext(ctx), nil
}

func noBody() (io.ReadCloser, error) { return http.NoBody, nil }

// plainURL reads a URL that has a scheme, a host and a path of letters, digits and a few marks, as url.Parse does. It is
// false for any other.
func plainURL(s string, u *url.URL) bool {
	scheme, rest, ok := strings.Cut(s, "://")
	at := strings.IndexByte(rest, '/')
	if !ok || scheme != "http" && scheme != "https" || at <= 0 {
		return false
	}
	host, path := rest[:at], rest[at:]
	for i := range len(path) {
		if c := path[i]; !alphanumeric(c) && c != '/' && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	name, port, ported := strings.Cut(host, ":")
	for i := range len(name) {
		if c := name[i]; !alphanumeric(c) && c != '-' && c != '.' {
			return false
		}
	}
	for i := range len(port) {
		if port[i] < '0' || port[i] > '9' {
			return false
		}
	}
	if name == "" || ported && port == "" {
		return false
	}
	*u = url.URL{Scheme: scheme, Host: host, Path: path}
	return true
}

func alphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
