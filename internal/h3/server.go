package h3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// Config of a Server. Every bound must be positive.
type Config struct {
	// TLS shows the certificate. Its protocols are set here.
	TLS *tls.Config
	// Handler serves. It must not be nil.
	Handler http.Handler
	// MaxHeaderBytes bounds a request's head, MaxStreams the requests at work on one connection.
	MaxHeaderBytes, MaxStreams int
	// MaxConnections bounds open connections; one more is turned away.
	MaxConnections int
	// HandshakeTimeout bounds a handshake. IdleTimeout is how long a connection without a request at work is kept.
	HandshakeTimeout, IdleTimeout time.Duration
	// Refused is told why a connection was ended: crowd (there are too many) or resets (its client takes back what it
	// asked for too fast). It must not be nil.
	Refused func(reason string)
	// Measured is told a connection's smoothed round trip when it ends, and now and then after a request while it lasts. Nil
	// ignores; it must not block.
	Measured func(from net.Addr, rtt time.Duration)
	// Log takes what is worth a look; nil discards.
	Log *slog.Logger
}

// Server is the door: Listen, Serve, Stop.
type Server struct {
	cfg       Config
	transport *quic.Transport
	listener  *quic.Listener
	http      *http3.Server
	conns     atomic.Int64
	active    atomic.Int64
	quiet     atomic.Int64 // when the last request ended, in Unix nanoseconds
}

// Handshakes that wait, from which on addresses must prove themselves first (RFC 9000, 8.1.2).
const retryAbove = 256

// quicIdle is how long QUIC waits for any packet of a client that has vanished. A live one has its own keep-alive, or asks
// anew. It is no less than what networks in between forget at.
const quicIdle = 60 * time.Second

// Listen serves what comes over a socket, once Serve is called. The socket is the caller's to close.
func Listen(pc net.PacketConn, cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg}
	var shaking atomic.Int64
	s.transport = &quic.Transport{
		Conn:                pc,
		VerifySourceAddress: func(net.Addr) bool { return shaking.Load() > retryAbove },
		ConnContext: func(ctx context.Context, _ *quic.ClientInfo) (context.Context, error) {
			shaking.Add(1)
			t := time.AfterFunc(cfg.HandshakeTimeout, func() { shaking.Add(-1) })
			context.AfterFunc(ctx, func() {
				if t.Stop() {
					shaking.Add(-1)
				}
			})
			return ctx, nil
		},
	}
	var err error
	if s.listener, err = s.transport.Listen(http3.ConfigureTLSConfig(cfg.TLS), s.quic()); err != nil {
		return nil, fmt.Errorf("opening HTTP/3: %w", errors.Join(err, s.transport.Close()))
	}
	s.http = &http3.Server{
		Handler: http.HandlerFunc(s.serve), MaxHeaderBytes: cfg.MaxHeaderBytes, IdleTimeout: cfg.IdleTimeout, Logger: slog.New(slog.DiscardHandler),
		ConnContext: func(ctx context.Context, c *quic.Conn) context.Context { return s.track(ctx, c) },
	}
	return s, nil
}

func (s *Server) quic() *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout: s.cfg.HandshakeTimeout, MaxIdleTimeout: max(quicIdle, s.cfg.IdleTimeout),
		MaxIncomingStreams: int64(s.cfg.MaxStreams), MaxIncomingUniStreams: 8,
		InitialStreamReceiveWindow: 256 << 10, MaxStreamReceiveWindow: 2 << 20,
		InitialConnectionReceiveWindow: 512 << 10, MaxConnectionReceiveWindow: 8 << 20,
		KeepAlivePeriod: 20 * time.Second,
	}
}

// Serve takes connections until Stop.
func (s *Server) Serve() error {
	err := s.http.ServeListener(&crowd{s.listener, s})
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, quic.ErrTransportClosed) {
		return nil
	}
	return err
}

// Connections is how many are open.
func (s *Server) Connections() int { return int(s.conns.Load()) }

// lastWords is how long what a request's answer ended with may still be on its way.
const lastWords = time.Second

// Stop takes nothing new, lets requests finish until ctx ends, and then cuts them.
func (s *Server) Stop(ctx context.Context) error {
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { done <- s.http.Shutdown(ctx) }()
	err := s.idle(ctx)
	cancel()
	<-done // it waited for clients to hang up, which they owe nobody
	s.Close()
	return err
}

// idle waits until no request is at work and the last one's answer is out.
func (s *Server) idle(ctx context.Context) error {
	for {
		quiet := time.Since(time.Unix(0, s.quiet.Load()))
		if s.active.Load() == 0 && quiet >= lastWords || s.conns.Load() == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			if s.active.Load() == 0 {
				return nil
			}
			return fmt.Errorf("waiting for requests over HTTP/3 to finish: %w", ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Close cuts everything.
func (s *Server) Close() {
	_ = s.http.Close()      // all that it would say is that it is closed
	_ = s.listener.Close()  // as above
	_ = s.transport.Close() // as above
}

// crowd bounds what a listener accepts.
type crowd struct {
	*quic.Listener
	s *Server
}

// excessiveLoad is H3_EXCESSIVE_LOAD (RFC 9114, 8.1).
const excessiveLoad = quic.ApplicationErrorCode(http3.ErrCodeExcessiveLoad)

// Accept returns the next connection for which there is room.
func (l *crowd) Accept(ctx context.Context) (*quic.Conn, error) {
	for {
		c, err := l.Listener.Accept(ctx)
		if err != nil {
			return nil, err
		}
		if l.s.conns.Add(1) <= int64(l.s.cfg.MaxConnections) {
			context.AfterFunc(c.Context(), func() { l.s.conns.Add(-1) })
			return c, nil
		}
		l.s.conns.Add(-1)
		l.s.cfg.Refused("crowd")
		_ = c.CloseWithError(excessiveLoad, "too many connections") // who listens is told
	}
}
