//go:build !linux

package dns

import (
	"net"
	"net/netip"
)

// canSharePort is false: one socket with several readers serves an address.
const canSharePort = false

func listenUDP(addr netip.AddrPort, _ bool) (*net.UDPConn, error) {
	return net.ListenUDP("udp"+networkSuffix(addr), net.UDPAddrFromAddrPort(addr))
}

func replyControl([]byte) []byte { return nil }
