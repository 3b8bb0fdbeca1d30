package local

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/netif"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/engine"
)

// newWorkerTransport returns the transport to workers, over nw if not nil. The check of forbidden addresses applies
// to the resolved address, not to the name. With off set, net/http makes the calls instead of the fast path.
func newWorkerTransport(names *serverNames, nw netif.HostNetwork, off bool) http.RoundTripper {
	return newNamedTransport(names, func() http.RoundTripper { return forward.WithFastPath(newHTTPTransport(names, nw), nw, off) })
}

// newStreamTransport is newWorkerTransport for bodies that are forwarded without buffering.
func newStreamTransport(names *serverNames, nw netif.HostNetwork) http.RoundTripper {
	return newNamedTransport(names, func() http.RoundTripper {
		t := newHTTPTransport(names, nw)
		forward.CloseBodiesOnConnEnd(t)
		return forward.WithSingleSend(t)
	})
}

func newHTTPTransport(names *serverNames, nw netif.HostNetwork) *http.Transport {
	t := forward.NewTransport(nil)
	dial := newWorkerDialer(nw)
	t.DialContext = dial
	t.DialTLSContext = names.newTLSDialer(dial)
	return t
}

// newWorkerDialer returns a dialer that refuses addresses which cannot be a worker's.
func newWorkerDialer(nw netif.HostNetwork) func(ctx context.Context, network, address string) (net.Conn, error) {
	if nw != nil {
		return nw.DialContext
	}
	d := forward.NewDialer()
	d.Control = checkWorkerAddress
	return d.DialContext
}

func checkWorkerAddress(_, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("dialling a worker: %w", err)
	}
	if discover.IsForbiddenAddr(a.Addr()) {
		return fmt.Errorf("dialling a worker: %s is not allowed as a worker address", a.Addr())
	}
	return nil
}

// maxConcurrentScrapes bounds the scrapes of workers in progress at once.
const maxConcurrentScrapes = 64

// newScrapeClient returns the client that scrapes workers. It does not follow redirects: a worker reports for itself
// only.
func newScrapeClient(t http.RoundTripper) *engine.Client {
	return engine.NewClient(&http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, maxConcurrentScrapes)
}

// serverNames holds the names of https workers that are dialled by address. Certificates are verified for these names, and
// the Host header carries them.
type serverNames struct {
	mu        sync.RWMutex
	byAddress map[string]string // host:port of the URL -> name
	usesTLS   atomic.Bool       // some worker has an https URL
	// credentials holds what each worker requires of its callers.
	credentials credentialTable
	// rootCAs verify the workers' certificates; nil means the system's roots.
	rootCAs *x509.CertPool
}

// setWorkers replaces the names and credentials by those of the list. It returns true when those of an address have changed.
func (n *serverNames) setWorkers(list []discover.Worker) (changed bool) {
	by := map[string]string{}
	usesTLS := false
	for i := range list {
		usesTLS = usesTLS || strings.HasPrefix(list[i].URL, "https:")
		if u, err := url.Parse(list[i].URL); err == nil && u.Scheme == "https" && list[i].ServerName != "" {
			by[tlsHostPort(u)] = list[i].ServerName
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	changed = !maps.Equal(by, n.byAddress)
	n.byAddress = by
	n.usesTLS.Store(usesTLS)
	return n.credentials.setWorkers(list) || changed
}

func tlsHostPort(u *url.URL) string { return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")) }

func (n *serverNames) nameFor(hostport string) string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.byAddress[hostport]
}

// handshakeTimeout bounds the TLS handshake with a worker.
const handshakeTimeout = 2 * time.Second

// newTLSDialer returns a dialer of TLS connections that negotiate one of the protocols. The certificate must be valid for the
// worker's name, or without one for the host of its URL.
func (n *serverNames) newTLSDialer(dial func(context.Context, string, string) (net.Conn, error), protocols ...string) func(context.Context, string, string) (net.Conn, error) {
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
		cfg := &tls.Config{ServerName: cmp.Or(n.nameFor(address), host), RootCAs: n.rootCAs, MinVersion: tls.VersionTLS12, NextProtos: protocols}
		if v := n.credentials.credentialFor("https", address); v != nil {
			cfg.RootCAs, cfg.Certificates = cmp.Or(v.Roots, n.rootCAs), v.Certificates
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
