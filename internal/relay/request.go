package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/spillway-lb/spillway/internal/openai"
)

// held is the body of a request that is in memory, and where the request goes. It lets go of the memory once it was sent and
// its request cannot be sent again: an answer may take much longer than its request.
type held struct {
	url url.URL

	mu      sync.Mutex
	plain   bytes.Reader          // where nothing of it is written anew
	worded  *openai.WordingReader // where something is
	of      openai.Wording        // of which the two read
	unsent  int                   // bytes
	dropped bool                  // it is let go of when all was sent
}

// set makes w the body.
func (h *held) set(w openai.Wording) {
	h.of, h.unsent = w, w.Len()
	if w.Edited() {
		h.worded = h.of.Reader()
		return
	}
	h.plain.Reset(w.Bytes())
}

// Read implements io.Reader.
func (h *held) Read(p []byte) (n int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.dropped && h.unsent == 0:
		return 0, io.EOF
	case h.worded != nil:
		n, err = h.worded.Read(p)
	default:
		n, err = h.plain.Read(p)
	}
	h.unsent -= n
	h.letGo()
	return n, err
}

// Close does nothing.
func (h *held) Close() error { return nil }

// drop has the memory let go of.
func (h *held) drop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropped = true
	h.letGo()
}

func (h *held) letGo() {
	if h.dropped && h.unsent == 0 {
		h.of, h.worded = openai.Wording{}, nil
		h.plain.Reset(nil)
	}
}

var errDropped = errors.New("the body was let go of: its answer has begun")

// again is the body from its beginning.
func (h *held) again() (io.ReadCloser, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dropped {
		return nil, errDropped
	}
	again := &held{}
	again.set(h.of)
	return again, nil
}

// carry makes w the body of a request.
func carry(r *http.Request, w *openai.Wording) {
	body := &held{}
	body.set(*w)
	r.Body, r.GetBody, r.ContentLength = body, body.again, int64(w.Len())
}

// dropBody lets go of the body of a request that will not be sent again.
func dropBody(r *http.Request) {
	if r == nil {
		return
	}
	if h, ok := r.Body.(*held); ok {
		h.drop()
	}
}

// request is http.NewRequestWithContext for what is sent all the time: a body in memory, to an address of the usual kind.
// headers is how many there will be, about.
func request(ctx context.Context, method, to string, body []byte, headers int) (*http.Request, error) {
	h := &held{}
	if !plainURL(to, &h.url) {
		return http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	}
	r := &http.Request{
		Method: method, URL: &h.url, Host: h.url.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header, headers), Body: http.NoBody, GetBody: noBody,
	}
	if len(body) > 0 {
		h.set(openai.WordingOf(body))
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
