//go:build !linux

package dns

import (
	"net"
	"net/netip"
)

// canShare is false: one socket with several readers serves an address.
const canShare = false

func listenUDP(addr netip.AddrPort, _ bool) (*net.UDPConn, error) {
	return net.ListenUDP("udp"+version(addr), net.UDPAddrFromAddrPort(addr))
}

func sourceControl([]byte) []byte { return nil }
