package dns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// canSharePort is true: several sockets may share a port, and a message carries its destination address.
const canSharePort = true

// listenUDP binds one of several sockets of an address. With control, each message carries its destination address:
// on a host with several, the answer must leave from that address.
func listenUDP(addr netip.AddrPort, control bool) (*net.UDPConn, error) {
	lc := net.ListenConfig{Control: func(network, _ string, c syscall.RawConn) error {
		var err error
		ctlErr := c.Control(func(fd uintptr) { err = setSocketOptions(int(fd), network, control) })
		if ctlErr != nil {
			return ctlErr
		}
		return err
	}}
	conn, err := lc.ListenPacket(context.Background(), "udp"+networkSuffix(addr), addr.String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.UDPConn), nil
}

func setSocketOptions(fd int, network string, control bool) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return fmt.Errorf("sharing a UDP port: %w", err)
	}
	if !control {
		return nil
	}
	if network == "udp4" {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
}

// replyControl turns the control message of a query into that of its answer: the same address, on the interface that
// the routes choose. It returns nil for any other control message.
func replyControl(oob []byte) []byte {
	if len(oob) < unix.SizeofCmsghdr {
		return nil
	}
	h, data, _, err := unix.ParseOneSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	switch {
	case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
		clear(data[:4]) // the interface
	case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
		if !netip.AddrFrom16([16]byte(data[:16])).IsLinkLocalUnicast() {
			clear(data[16:20]) // the interface
		}
	default:
		return nil
	}
	return oob
}
