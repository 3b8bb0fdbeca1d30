package local

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/netif"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/engine"
)

// newWorkerTransport returns the transport to workers, over nw if not nil. The check of forbidden addresses applies
// to the resolved address, not to the name. With off set, net/http makes the calls instead of the fast path.
func newWorkerTransport(names *serverNames, nw netif.HostNetwork, off bool) http.RoundTripper {
	return &namedTransport{RoundTripper: forward.WithFastPath(newHTTPTransport(names, nw), nw, off), serverNames: names}
}

// newStreamTransport is newWorkerTransport for bodies that are forwarded without buffering.
func newStreamTransport(names *serverNames, nw netif.HostNetwork) http.RoundTripper {
	t := newHTTPTransport(names, nw)
	forward.CloseBodiesOnConnEnd(t)
	return &namedTransport{RoundTripper: forward.WithSingleSend(t), serverNames: names}
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
