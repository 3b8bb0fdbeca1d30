package forward

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/http1"
	"github.com/spillway-lb/spillway/internal/netif"
)

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
