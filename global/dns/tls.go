package dns

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"
)

// handshakeTimeout bounds the TLS handshake of a connection.
const handshakeTimeout = 3 * time.Second

// dotALPN is the ALPN name of DNS over TLS (RFC 7858).
const dotALPN = "dot"

// newTLSConfig returns the operator's configuration with the ALPN name. Clients without ALPN are served, because
// older ones send none.
func newTLSConfig(cfg *tls.Config) (*tls.Config, error) {
	if cfg == nil {
		return nil, errors.New("DNS over TLS needs a certificate: set one, or leave its addresses out")
	}
	cfg = cfg.Clone()
	cfg.NextProtos, cfg.MinVersion = []string{dotALPN}, max(cfg.MinVersion, tls.VersionTLS12)
	return cfg, nil
}

// listenTLS binds an address for DNS over TLS.
func listenTLS(text string) (*boundPort, error) {
	addr, err := resolveAddr(text)
	if err != nil {
		return nil, err
	}
	l, err := net.ListenTCP("tcp"+networkSuffix(addr), net.TCPAddrFromAddrPort(addr))
	if err != nil {
		return nil, explainBindError(text, err)
	}
	return &boundPort{addr: l.Addr().(*net.TCPAddr).AddrPort(), tcp: l, tls: true}, nil
}

// openTLS binds the addresses of DNS over TLS.
func (s *Server) openTLS() error {
	if len(s.cfg.TLSListen) == 0 {
		return nil
	}
	cfg, err := newTLSConfig(s.cfg.TLS)
	if err != nil {
		return err
	}
	s.tls = cfg
	for _, addr := range s.cfg.TLSListen {
		p, err := listenTLS(addr)
		if err != nil {
			return err
		}
		s.ports = append(s.ports, p)
	}
	return nil
}

// handshakeTLS completes the TLS handshake with a client and reports whether it may be served.
func (s *Server) handshakeTLS(c *tcpConn) bool {
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	defer cancel()
	t := tls.Server(c.conn, s.tls)
	return t.HandshakeContext(ctx) == nil && c.wrapTLS(t)
}

// wrapTLS puts TLS over the connection, unless it was asked to end in the meantime.
func (c *tcpConn) wrapTLS(t *tls.Conn) bool {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	c.conn, c.transport = t, TLS
	return !c.ending
}
