package local

import (
	"fmt"
	"net/http"
	"net/netip"
	"syscall"

	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/local/discover"
)

// workerTransport dials workers. The address that a name resolved to is checked, not the name.
func workerTransport() *http.Transport {
	t := relay.NewTransport(nil)
	d := relay.NewDialer()
	d.Control = permitted
	t.DialContext = d.DialContext
	return t
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

// scrapeClient asks workers about themselves. Redirects are not followed: a worker speaks for itself only.
func scrapeClient(t http.RoundTripper) *http.Client {
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
