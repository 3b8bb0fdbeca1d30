package relay

import (
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// NewTransport returns the HTTP/1.1 transport between tiers: long-lived connections, no compression, quick to notice a
// host that is gone. tlsConfig nil is plain HTTP, for workers.
func NewTransport(tlsConfig *tls.Config) *http.Transport {
	dialer := &net.Dialer{Timeout: time.Second, KeepAlive: 15 * time.Second}
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
