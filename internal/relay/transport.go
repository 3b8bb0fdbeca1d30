package relay

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/network"
	"github.com/spillway-lb/spillway/internal/wire"
)

// NewTransport returns the HTTP/1.1 transport between tiers: long-lived connections, no compression, quick to notice a
// host that is gone. tlsConfig nil is plain HTTP, for workers.
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

// Fast carries what is of the usual shape by the short way, with the settings of t. Inside one process, where nw stands in
// for the system's network, there is none; nor where off says so.
func Fast(t *http.Transport, nw network.Network, off bool) http.RoundTripper {
	if nw != nil || off {
		return t
	}
	return wire.Over(t)
}

// Server is what a door is served by.
type Server interface {
	Serve(l net.Listener) error
	ServeTLS(l net.Listener, certFile, keyFile string) error
	Shutdown(ctx context.Context) error
	Close() error
}

// FastServer serves what is of the usual shape by the short way, with the settings of s. odd, where it is given, stands
// between s and connections that are left to it. Inside one process, where nw stands in for the system's network, those
// are all; and where off says so.
func FastServer(s *http.Server, nw network.Network, off bool, odd func(net.Listener) net.Listener) Server {
	switch {
	case nw == nil && !off:
		return wire.NewServer(s, odd)
	case odd == nil:
		return s
	}
	return &slowServer{s, odd}
}

// slowServer has net/http serve everything.
type slowServer struct {
	*http.Server
	odd func(net.Listener) net.Listener
}

// Serve is http.Server's, behind what stands between.
func (s *slowServer) Serve(l net.Listener) error { return s.Server.Serve(s.odd(l)) }

// NewDialer returns the dialer between tiers. A host that vanishes without a reset is noticed by its missing answers to
// probes, in about 13 s; a host whose process is frozen answers them, and is found out by what it does not send.
func NewDialer() *net.Dialer {
	return &net.Dialer{
		Timeout:         time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 4},
	}
}
