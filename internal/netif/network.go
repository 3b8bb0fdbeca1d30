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
