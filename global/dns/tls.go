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

// alpn is the name of DNS over TLS in the handshake (RFC 7858).
const alpn = "dot"

// tlsConfig is the operator's with our protocol's name. Clients without ALPN are served, for older ones have none.
func tlsConfig(cfg *tls.Config) (*tls.Config, error) {
	if cfg == nil {
		return nil, errors.New("DNS over TLS needs a certificate: set one, or leave its addresses out")
	}
	cfg = cfg.Clone()
	cfg.NextProtos, cfg.MinVersion = []string{alpn}, max(cfg.MinVersion, tls.VersionTLS12)
	return cfg, nil
}

// listenTLS binds an address for DNS over TLS.
func listenTLS(text string) (*port, error) {
	addr, err := resolve(text)
	if err != nil {
		return nil, err
	}
	l, err := net.ListenTCP("tcp"+version(addr), net.TCPAddrFromAddrPort(addr))
	if err != nil {
		return nil, explain(text, err)
	}
	return &port{addr: l.Addr().(*net.TCPAddr).AddrPort(), tcp: l, tls: true}, nil
}

// openTLS binds the addresses of DNS over TLS.
func (s *Server) openTLS() error {
	if len(s.cfg.TLSListen) == 0 {
		return nil
	}
	cfg, err := tlsConfig(s.cfg.TLS)
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

// secure shakes hands with a client and reports whether it may be served.
func (s *Server) secure(c *connection) bool {
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	defer cancel()
	t := tls.Server(c.conn, s.tls)
	return t.HandshakeContext(ctx) == nil && c.wrap(t)
}

// wrap puts TLS over the connection, unless it was told to end in the meantime.
func (c *connection) wrap(t *tls.Conn) bool {
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	c.conn, c.by = t, TLS
	return !c.gone
}
