package dns

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"
)

// Deadlines of a TCP connection. A message's deadline counts from its first byte to its last, so that a client that
// sends single bytes cannot hold a connection.
const (
	idleTimeout    = 10 * time.Second
	messageTimeout = 2 * time.Second
	writeTimeout   = 2 * time.Second
	acceptPause    = 20 * time.Millisecond // when the process has no file descriptor left
	lingerTimeout  = 200 * time.Millisecond
	lingerBytes    = 128 << 10
)

// serveTCP accepts connections until the listener is closed.
func (s *Server) serveTCP(p *boundPort) {
	for {
		c, err := p.tcp.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.cfg.Log.Warn("accepting a DNS connection failed", "error", err)
			time.Sleep(acceptPause)
			continue
		}
		conn, ok := s.conns.admitConn(c)
		if !ok {
			_ = c.Close()
			continue
		}
		s.done.Go(func() {
			defer s.conns.releaseConn(conn)
			if !p.tls || s.handshakeTLS(conn) {
				s.serveConn(conn)
			}
		})
	}
}

// serveConn answers the messages of one connection in order. Answers are gathered while further queries wait, so that
// a pipelining client causes few writes.
func (s *Server) serveConn(c *tcpConn) {
	r, w := bufio.NewReader(c.conn), bufio.NewWriter(c.conn)
	var in []byte
	out := make([]byte, 2*maxUDPSize)
	for {
		if !hasMessage(r) && flushAnswers(c, w) != nil {
			break // a client that waits for these answers may not send the rest before
		}
		if r.Buffered() == 0 && !c.awaitMessage(r) {
			break
		}
		var err error
		if in, err = readMessage(c, r, in); err != nil {
			break
		}
		reply, ok := s.answerAndObserve(out, in, c.clientAddr, c.transport)
		if !ok {
			continue
		}
		if writeMessage(c, w, reply) != nil {
			break
		}
	}
	_ = flushAnswers(c, w)
	c.lingerClose(r)
}

// hasMessage reports whether a whole message can be read without waiting.
func hasMessage(r *bufio.Reader) bool {
	if r.Buffered() < 2 {
		return false
	}
	length, err := r.Peek(2)
	return err == nil && r.Buffered() >= 2+int(binary.BigEndian.Uint16(length))
}

// readMessage reads one message with its length prefix.
func readMessage(c *tcpConn, r *bufio.Reader, buf []byte) ([]byte, error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(messageTimeout)); err != nil {
		return buf, err
	}
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return buf, err
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	_, err := io.ReadFull(r, buf)
	return buf, err
}

func writeMessage(c *tcpConn, w *bufio.Writer, reply []byte) error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if _, err := w.Write([]byte{byte(len(reply) >> 8), byte(len(reply))}); err != nil {
		return err
	}
	_, err := w.Write(reply)
	return err
}

func flushAnswers(c *tcpConn, w *bufio.Writer) error {
	if w.Buffered() == 0 {
		return nil
	}
	if err := c.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return w.Flush()
}

// handshakeTimeout bounds the TLS handshake of a connection.
const handshakeTimeout = 3 * time.Second

// dotALPN is the ALPN name of DNS over TLS (RFC 7858).
const dotALPN = "dot"

// newTLSConfig returns the operator's configuration with the ALPN name. Clients without ALPN are served, because
// older ones send none.
func newTLSConfig(cfg *tls.Config) (*tls.Config, error) {
	if cfg == nil {
		return nil, errors.New("DNS over TLS has addresses and no certificate: set a certificate, or remove the addresses")
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
