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

// port is one address with its sockets.
type port struct {
	addr netip.AddrPort
	udp  []*socket
	tcp  *net.TCPListener
	tls  bool // DNS over TLS, and no UDP
}

// listen binds an address for TCP and UDP. Port 0 takes a port that is free in both.
func listen(text string, cfg *Config) (*port, error) {
	addr, err := resolve(text)
	if err != nil {
		return nil, err
	}
	const tries = 16
	for i := 1; ; i++ {
		p, err := bind(addr, cfg)
		if err == nil {
			return p, nil
		}
		if addr.Port() != 0 || i == tries || !errors.Is(err, syscall.EADDRINUSE) {
			return nil, explain(text, err)
		}
	}
}

func resolve(text string) (netip.AddrPort, error) {
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

func explain(text string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s is in use by another process; stop it, or give the dns server another port: %w", text, err)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%s may not be bound; ports below 1024 need CAP_NET_BIND_SERVICE: %w", text, err)
	}
	return fmt.Errorf("binding %s: %w", text, err)
}

// bind takes the TCP port first: it cannot be shared, so two servers never mix on one port unnoticed.
func bind(addr netip.AddrPort, cfg *Config) (*port, error) {
	tcp, err := net.ListenTCP("tcp"+version(addr), net.TCPAddrFromAddrPort(addr))
	if err != nil {
		return nil, err
	}
	bound := tcp.Addr().(*net.TCPAddr).AddrPort().Port()
	p := &port{addr: netip.AddrPortFrom(addr.Addr(), bound), tcp: tcp}
	if err := alone(p.addr); err != nil {
		p.close()
		return nil, err
	}
	if err := p.bindUDP(cfg); err != nil {
		p.close()
		p.release()
		return nil, err
	}
	return p, nil
}

// alone fails when any UDP socket is bound to the address, even one that would share it.
func alone(addr netip.AddrPort) error {
	probe, err := net.ListenUDP("udp"+version(addr), net.UDPAddrFromAddrPort(addr))
	if err != nil {
		return err
	}
	return probe.Close()
}

func (p *port) bindUDP(cfg *Config) error {
	sockets := cfg.Readers
	if !canShare {
		sockets = 1
	}
	control := canShare && p.addr.Addr().IsUnspecified()
	for range sockets {
		conn, err := listenUDP(p.addr, control)
		if err != nil {
			return err
		}
		if err := conn.SetReadBuffer(receiveBuffer); err != nil {
			_ = conn.Close()
			return err
		}
		sock, err := newSocket(conn, control, cfg.Dedicated)
		if err != nil {
			return err
		}
		p.udp = append(p.udp, sock)
	}
	return nil
}

// close ends reading; answers to what was read may still be written.
func (p *port) close() {
	_ = p.tcp.Close()
	for _, s := range p.udp {
		s.close()
	}
}

// release gives the UDP sockets back, once nobody uses them any more.
func (p *port) release() {
	for _, s := range p.udp {
		s.release()
	}
}

// version is the suffix of a network's name. An unspecified IPv6 address takes both.
func version(addr netip.AddrPort) string {
	switch {
	case addr.Addr().Is4():
		return "4"
	case addr.Addr().IsUnspecified():
		return ""
	}
	return "6"
}
