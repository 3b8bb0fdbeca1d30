package local

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"maps"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/local/discover"
)

// serverNames are the names of https workers that are dialled by address: what their certificates and Host are for.
type serverNames struct {
	mu sync.RWMutex
	by map[string]string // host:port of the URL to the name
	// access is what each worker requires, beside its name.
	access accessTable
	// roots that sign workers' certificates; nil for the machine's.
	roots *x509.CertPool
}

// set takes the names from the workers; true when the name of an address has changed.
func (n *serverNames) set(list []discover.Worker) (changed bool) {
	by := map[string]string{}
	for i := range list {
		if u, err := url.Parse(list[i].URL); err == nil && u.Scheme == "https" && list[i].ServerName != "" {
			by[withPort(u)] = list[i].ServerName
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	changed = !maps.Equal(by, n.by)
	n.by = by
	return n.access.set(list) || changed
}

func withPort(u *url.URL) string { return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")) }

func (n *serverNames) of(hostport string) string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.by[hostport]
}

// handshakeTimeout bounds TLS with a worker.
const handshakeTimeout = 2 * time.Second

// dialer opens TLS connections that speak one of the protocols whose certificate must be for the worker's name, or for the
// host of its URL.
func (n *serverNames) dialer(dial func(context.Context, string, string) (net.Conn, error), protocols ...string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		raw, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			_ = raw.Close()
			return nil, err
		}
		cfg := &tls.Config{ServerName: cmp.Or(n.of(address), host), RootCAs: n.roots, MinVersion: tls.VersionTLS12, NextProtos: protocols}
		if v := n.access.at("https", address); v != nil {
			cfg.RootCAs, cfg.Certificates = cmp.Or(v.Roots, n.roots), v.Certificates
		}
		c := tls.Client(raw, cfg)
		ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
		defer cancel()
		if err := c.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, err
		}
		return c, nil
	}
}

// namedTransport also sends the worker's name as Host, for workers behind a server of several, and what the worker requires
// of its callers. Every call to a worker passes here.
type namedTransport struct {
	http.RoundTripper
	names *serverNames
}

// CloseIdleConnections closes connections that are kept and not in use.
func (t *namedTransport) CloseIdleConnections() {
	t.RoundTripper.(interface{ CloseIdleConnections() }).CloseIdleConnections()
}

// RoundTrip follows no redirect, as no transport does.
func (t *namedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "https" {
		if name := t.names.of(withPort(r.URL)); name != "" {
			r = r.WithContext(r.Context()) // a copy: the caller's stays as it is
			r.Host = name
			if p := r.URL.Port(); p != "" && p != "443" {
				r.Host = net.JoinHostPort(name, p)
			}
		}
	}
	r, err := t.names.access.admit(r)
	if err != nil {
		return nil, err
	}
	return t.RoundTripper.RoundTrip(r)
}
