package dns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// receiveBuffer holds a burst of queries while their reader waits for a core, in bytes.
const receiveBuffer = 1 << 20

// maxSockets bounds the UDP sockets of one address.
const maxSockets = 8

// boundPort is one address with its sockets.
type boundPort struct {
	addr netip.AddrPort
	udp  []*udpSocket
	tcp  *net.TCPListener
	tls  bool // DNS over TLS, and no UDP
}

// listenPort binds an address for TCP and UDP. Port 0 selects a port that is free for both.
func listenPort(text string, cfg *Config) (*boundPort, error) {
	addr, err := resolveAddr(text)
	if err != nil {
		return nil, err
	}
	const tries = 16
	for i := 1; ; i++ {
		p, err := bindPort(addr, cfg)
		if err == nil {
			return p, nil
		}
		if addr.Port() != 0 || i == tries || !errors.Is(err, syscall.EADDRINUSE) {
			return nil, explainBindError(text, err)
		}
	}
}

func resolveAddr(text string) (netip.AddrPort, error) {
	a, err := net.ResolveUDPAddr("udp", text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("address %q: %w; write host:port, such as 0.0.0.0:53", text, err)
	}
	addr := a.AddrPort()
	if !addr.Addr().IsValid() {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), addr.Port()), nil
	}
	return netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()), nil
}

func explainBindError(text string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s is in use by another process; stop it, or give the dns server another port: %w", text, err)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%s may not be bound; ports below 1024 need CAP_NET_BIND_SERVICE: %w", text, err)
	}
	return fmt.Errorf("binding %s: %w", text, err)
}

// bindPort binds TCP first: that port cannot be shared, so two servers never share one port unnoticed.
func bindPort(addr netip.AddrPort, cfg *Config) (*boundPort, error) {
	tcp, err := net.ListenTCP("tcp"+networkSuffix(addr), net.TCPAddrFromAddrPort(addr))
	if err != nil {
		return nil, err
	}
	bound := tcp.Addr().(*net.TCPAddr).AddrPort().Port()
	p := &boundPort{addr: netip.AddrPortFrom(addr.Addr(), bound), tcp: tcp}
	if err := checkUnshared(p.addr); err != nil {
		p.stopReading()
		return nil, err
	}
	if err := p.bindUDP(cfg); err != nil {
		p.stopReading()
		p.releaseSockets()
		return nil, err
	}
	return p, nil
}

// checkUnshared returns an error if any UDP socket is bound to the address, even one that allows sharing.
func checkUnshared(addr netip.AddrPort) error {
	probe, err := net.ListenUDP("udp"+networkSuffix(addr), net.UDPAddrFromAddrPort(addr))
	if err != nil {
		return err
	}
	return probe.Close()
}

func (p *boundPort) bindUDP(cfg *Config) error {
	sockets := cfg.Readers
	if !canSharePort {
		sockets = 1
	}
	control := canSharePort && p.addr.Addr().IsUnspecified()
	for range sockets {
		conn, err := listenUDP(p.addr, control)
		if err != nil {
			return err
		}
		if err := conn.SetReadBuffer(receiveBuffer); err != nil {
			_ = conn.Close()
			return err
		}
		sock, err := newSocket(conn, control, cfg.DedicatedProcs)
		if err != nil {
			return err
		}
		p.udp = append(p.udp, sock)
	}
	return nil
}

// stopReading ends reading; answers to received queries may still be written.
func (p *boundPort) stopReading() {
	_ = p.tcp.Close()
	for _, s := range p.udp {
		s.stopReading()
	}
}

// releaseSockets closes the UDP sockets when they are no longer in use.
func (p *boundPort) releaseSockets() {
	for _, s := range p.udp {
		s.releaseSocket()
	}
}

// networkSuffix is the suffix of a network's name. An unspecified IPv6 address covers both families.
func networkSuffix(addr netip.AddrPort) string {
	switch {
	case addr.Addr().Is4():
		return "4"
	case addr.Addr().IsUnspecified():
		return ""
	}
	return "6"
}
