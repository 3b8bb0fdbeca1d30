package netif

import (
	"context"
	"net"
)

// HostNetwork is one host's view of a network. Addresses are IP:port.
type HostNetwork interface {
	// Listen takes an address for connections.
	Listen(address string) (net.Listener, error)
	// ListenPacket takes an address for datagrams; port 0 takes a free one.
	ListenPacket(address string) (net.PacketConn, error)
	// DialContext connects, as net.Dialer's does.
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}
