package forward

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/http1"
	"github.com/spillway-lb/spillway/internal/netif"
	"github.com/spillway-lb/spillway/internal/openai"
)

// maxHopHeaders is the approximate number of headers that a hop adds.
const maxHopHeaders = 8

var identityEncoding = []string{"identity"} // never modified in place

// NewHopRequest builds the request to url: the client's method and end-to-end headers without its credentials
// and without Spillway-* headers, the body with its known length, and the headers of the hop. It does not
// request compression, so that events pass as they are produced.
func NewHopRequest(ctx context.Context, in *http.Request, url string, body []byte, hop *Hop) (*http.Request, error) {
	headers := 1
	for name := range in.Header {
		if !isTierHeader(name) {
			headers++
		}
	}
	if hop != nil {
		headers += maxHopHeaders
	}
	out, err := newRequest(ctx, in.Method, url, body, headers)
	if err != nil {
		return nil, fmt.Errorf("building the request to the next tier: %w", err)
	}
	copyHeaders(out.Header, in.Header, func(name string) bool {
		return isCredential(name) || name == "Accept-Encoding" || name == "Content-Length" || name == "Expect"
	})
	if out.Header["User-Agent"] == nil {
		out.Header["User-Agent"] = nil // otherwise the transport adds its own
	}
	out.Header["Accept-Encoding"] = identityEncoding
	if hop != nil {
		hop.SetHeaders(out.Header)
	}
	return out, nil
}

// NewEditedHopRequest is NewHopRequest for a body that may have edits.
func NewEditedHopRequest(ctx context.Context, in *http.Request, url string, body openai.EditedBody, hop *Hop) (*http.Request, error) {
	if !body.IsEdited() {
		return NewHopRequest(ctx, in, url, body.Bytes(), hop)
	}
	out, err := NewHopRequest(ctx, in, url, nil, hop)
	if err == nil {
		setRequestBody(out, &body)
	}
	return out, err
}

// NewPassthroughRequest builds a request to url, whose host it uses: the client's method and end-to-end
// headers, without its credentials, Spillway-* headers and forwarding headers, and the body as a stream. length
// is -1 if unknown; a nil body is no body. The body is not closed.
func NewPassthroughRequest(ctx context.Context, in *http.Request, url string, body io.Reader, length int64) (*http.Request, error) {
	var open io.Reader
	if body != nil {
		open = io.NopCloser(body)
	}
	out, err := http.NewRequestWithContext(ctx, in.Method, url, open)
	if err != nil {
		return nil, fmt.Errorf("building the request to a region: %w", err)
	}
	if body != nil {
		out.ContentLength = length
	}
	copyHeaders(out.Header, in.Header, func(name string) bool {
		return isCredential(name) || isOriginClaim(name) || name == "Accept-Encoding" || name == "Content-Length" || name == "Expect" || name == "Prefer"
	})
	if out.Header["User-Agent"] == nil {
		out.Header["User-Agent"] = nil // otherwise the transport adds its own
	}
	out.Header.Set("Accept-Encoding", "identity")
	return out, nil
}

// isOriginClaim reports whether a header names the origin of a request. Such headers from outside are not
// trusted.
func isOriginClaim(name string) bool {
	switch name {
	case "Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip":
		return true
	}
	return strings.HasPrefix(name, "X-Forwarded-")
}

// NewTransport returns the HTTP/1.1 transport between tiers: long-lived connections, no compression, fast
// detection of dead hosts. A nil tlsConfig means plain HTTP, for workers.
func NewTransport(tlsConfig *tls.Config) *http.Transport {
	dialer := NewDialer()
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        tlsConfig,
		TLSHandshakeTimeout:    2 * time.Second,
		TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{}, // not nil: no HTTP/2
		DisableCompression:     true,
		MaxIdleConns:           4096,
		MaxIdleConnsPerHost:    512,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		WriteBufferSize:        16 << 10,
		ReadBufferSize:         16 << 10,
	}
}

// WithFastPath sends ordinary requests by the fast path of http1, with the settings of t. It returns t if off
// is set, or if nw replaces the system's network inside one process.
func WithFastPath(t *http.Transport, nw netif.HostNetwork, off bool) http.RoundTripper {
	if nw != nil || off {
		return WithSingleSend(t)
	}
	return http1.NewTransport(t)
}

// WithSingleSend sends all requests by net/http, with the settings of t. An endpoint receives each request
// once.
func WithSingleSend(t *http.Transport) http.RoundTripper { return http1.NewSingleSendTransport(t) }

// Server is the HTTP server of a listener.
type Server interface {
	Serve(l net.Listener) error
	ServeTLS(l net.Listener, certFile, keyFile string) error
	Shutdown(ctx context.Context) error
	Close() error
}

// NewFastServer serves ordinary requests by the fast path of http1, with the settings of s. odd, if not nil,
// wraps the listener of connections left to s. If off is set, or if nw replaces the system's network inside one
// process, s serves all of them.
func NewFastServer(s *http.Server, nw netif.HostNetwork, off bool, odd func(net.Listener) net.Listener) Server {
	switch {
	case nw == nil && !off:
		return http1.NewServer(s, odd)
	case odd == nil:
		return s
	}
	return &netHTTPServer{s, odd}
}

// SetLoop gives a server that NewFastServer has returned a request loop. It has no effect on one that net/http serves.
func SetLoop(s Server, c *http1.LoopConfig) {
	if fast, ok := s.(*http1.Server); ok {
		fast.SetLoop(c)
	}
}

// netHTTPServer serves everything by net/http.
type netHTTPServer struct {
	*http.Server
	wrapListener func(net.Listener) net.Listener
}

// Serve is http.Server's Serve on the wrapped listener.
func (s *netHTTPServer) Serve(l net.Listener) error { return s.Server.Serve(s.wrapListener(l)) }

// NewDialer returns the dialer between tiers. A host that vanishes without a reset is detected by keep-alive
// probes, in about 13 s. A host whose process is frozen still answers probes and is detected by missing data.
func NewDialer() *net.Dialer {
	return &net.Dialer{
		Timeout:         time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 4},
	}
}
