package local

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"

	"github.com/spillway-lb/spillway/internal/network"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/engine"
)

// workerTransport dials workers, over nw where that is given. The address that a name resolved to is checked, not the name.
// off has net/http do it.
func workerTransport(names *serverNames, nw network.Network, off bool) http.RoundTripper {
	return &namedTransport{RoundTripper: relay.Fast(plainTransport(names, nw), nw, off), names: names}
}

// streamTransport is workerTransport for bodies that are not read before they go on.
func streamTransport(names *serverNames, nw network.Network) http.RoundTripper {
	t := plainTransport(names, nw)
	relay.TellEnds(t)
	return &namedTransport{RoundTripper: t, names: names}
}

func plainTransport(names *serverNames, nw network.Network) *http.Transport {
	t := relay.NewTransport(nil)
	dial := workerDialer(nw)
	t.DialContext = dial
	t.DialTLSContext = names.dialer(dial)
	return t
}

// workerDialer dials what may be a worker.
func workerDialer(nw network.Network) func(ctx context.Context, network, address string) (net.Conn, error) {
	if nw != nil {
		return nw.DialContext
	}
	d := relay.NewDialer()
	d.Control = permitted
	return d.DialContext
}

func permitted(_, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("dialling a worker: %w", err)
	}
	if discover.Forbidden(a.Addr()) {
		return fmt.Errorf("dialling a worker: %s is no place for one", a.Addr())
	}
	return nil
}

// scrapesAtOnce bounds the questions to workers that are under way at one time.
const scrapesAtOnce = 64

// scrapeClient asks workers about themselves. Redirects are not followed: a worker speaks for itself only.
func scrapeClient(t http.RoundTripper) *engine.Client {
	return engine.NewClient(&http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, scrapesAtOnce)
}
