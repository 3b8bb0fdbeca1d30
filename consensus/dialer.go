package consensus

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/netif"
)

// peerDialer opens connections to peers until ctx ends.
type peerDialer struct {
	network  netif.HostNetwork // nil: the system's
	ctx      context.Context
	certs    *identity.Certs
	book     *addressBook
	refusals *refusalLog
	conns    *connSet
	log      hcLogger
}

func (d *peerDialer) dialPeer(ctx context.Context, addr, alpn string) (net.Conn, error) {
	open := new(net.Dialer).DialContext
	if d.network != nil {
		open = d.network.DialContext
	}
	raw, err := open(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := tls.Client(raw, d.certs.ClientTLS(alpn, d.checkPeerAt(addr)))
	if err := c.HandshakeContext(ctx); err != nil {
		d.refusals.countRefusal(addr, err)
		_ = raw.Close()
		return nil, err
	}
	d.log.logPeerBack(addr)
	if !d.conns.addConn(c) {
		return nil, ErrStopped
	}
	return &trackedConn{Conn: c, onClose: func() { d.conns.removeConn(c) }}, nil
}

// checkPeerAt admits the global node that is known to be at addr, or any global node if none is known.
func (d *peerDialer) checkPeerAt(addr string) func(identity.ID) error {
	return func(id identity.ID) error {
		if err := requireGlobalRole(id); err != nil {
			return err
		}
		if want, ok := d.book.names[addr]; ok && want != id.Name {
			return fmt.Errorf("node at %s has a certificate for %s, not %s", addr, id.Name, want)
		}
		return nil
	}
}
