// Package netif is the network interface of a tier that does not use the system's network: tests run many nodes in one
// process, over a network in memory and in virtual time. A node in production sets none.
package netif

import (
	"context"
	"net"
)

// HostNetwork is one host's access to a network. Addresses are IP:port.
type HostNetwork interface {
	// Listen listens for connections at an address.
	Listen(address string) (net.Listener, error)
	// ListenPacket listens for datagrams at an address; port 0 selects a free one.
	ListenPacket(address string) (net.PacketConn, error)
	// DialContext connects, as net.Dialer.DialContext does.
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}
