// Package h3 is an HTTP/3 listener (RFC 9114) for clients, on the same port number as the TCP listener. Server
// accepts sessions; Config holds its limits: connections, requests per connection, head size, idle time and
// stream resets. Shutdown is graceful.
//
// 0-RTT is never accepted, because early data can be replayed and requests are billed. Authorization is the job
// of the handler.
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

// Config configures a Server. Every limit must be positive.
type Config struct {
	// TLS holds the certificate. The protocols are set by this package.
	TLS *tls.Config
	// Handler serves the requests. It must not be nil.
	Handler http.Handler
	// MaxHeaderBytes bounds the head of a request, MaxStreams the concurrent requests of one connection.
	MaxHeaderBytes, MaxStreams int
	// MaxConnections bounds the open connections; further ones are refused.
	MaxConnections int
	// HandshakeTimeout bounds a handshake. IdleTimeout is how long a connection without an active request is
	// kept.
	HandshakeTimeout, IdleTimeout time.Duration
	// OnRefused is called with the reason when a connection is closed: crowd (too many connections) or resets
	// (its client resets streams too fast). It must not be nil.
	OnRefused func(reason string)
	// OnRTT receives the smoothed RTT of a connection when it ends, and periodically after requests. Nil
	// disables it; it must not block.
	OnRTT func(from net.Addr, rtt time.Duration)
	// Log receives notable events; nil discards them.
	Log *slog.Logger
}

// Server is an HTTP/3 server: Listen, Serve, Stop.
type Server struct {
	cfg            Config
	transport      *quic.Transport
	listener       *quic.Listener
	httpServer     *http3.Server
	openConns      atomic.Int64
	activeRequests atomic.Int64
	lastRequestEnd atomic.Int64 // when the last request ended, in Unix nanoseconds
}

// retryThreshold is the number of pending handshakes from which on clients must validate their addresses first
// (RFC 9000, 8.1.2).
const retryThreshold = 256

// quicIdleTimeout is how long QUIC waits for any packet of a client that has vanished. A live client sends
// keep-alives or reconnects. It is not shorter than the usual UDP timeout of NATs.
const quicIdleTimeout = 60 * time.Second

// Listen prepares to serve on a socket; Serve starts. The caller closes the socket.
func Listen(pc net.PacketConn, cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg}
	var shaking atomic.Int64
	s.transport = &quic.Transport{
		Conn:                pc,
		VerifySourceAddress: func(net.Addr) bool { return shaking.Load() > retryThreshold },
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
	if s.listener, err = s.transport.Listen(http3.ConfigureTLSConfig(cfg.TLS), s.quicConfig()); err != nil {
		return nil, fmt.Errorf("opening HTTP/3: %w", errors.Join(err, s.transport.Close()))
	}
	s.httpServer = &http3.Server{
		Handler: http.HandlerFunc(s.serveRequest), MaxHeaderBytes: cfg.MaxHeaderBytes, IdleTimeout: cfg.IdleTimeout, Logger: slog.New(slog.DiscardHandler),
		ConnContext: func(ctx context.Context, c *quic.Conn) context.Context { return s.addSession(ctx, c) },
	}
	return s, nil
}

func (s *Server) quicConfig() *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout: s.cfg.HandshakeTimeout, MaxIdleTimeout: max(quicIdleTimeout, s.cfg.IdleTimeout),
		MaxIncomingStreams: int64(s.cfg.MaxStreams), MaxIncomingUniStreams: 8,
		InitialStreamReceiveWindow: 256 << 10, MaxStreamReceiveWindow: 2 << 20,
		InitialConnectionReceiveWindow: 512 << 10, MaxConnectionReceiveWindow: 8 << 20,
		KeepAlivePeriod: 20 * time.Second,
	}
}

// Serve accepts connections until Stop.
func (s *Server) Serve() error {
	err := s.httpServer.ServeListener(&limitedListener{s.listener, s})
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, quic.ErrTransportClosed) {
		return nil
	}
	return err
}

// Connections returns the number of open connections.
func (s *Server) Connections() int { return int(s.openConns.Load()) }

// answerFlushTime is how long the end of a response may still be in transmission after its request ended.
const answerFlushTime = time.Second

// Stop stops accepting, waits for requests until ctx ends, and then aborts them.
func (s *Server) Stop(ctx context.Context) error {
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { done <- s.httpServer.Shutdown(ctx) }()
	err := s.awaitIdle(ctx)
	cancel()
	<-done // waits for clients to close, which they need not do
	s.Close()
	return err
}

// awaitIdle waits until no request is active and the last response is sent.
func (s *Server) awaitIdle(ctx context.Context) error {
	for {
		quiet := time.Since(time.Unix(0, s.lastRequestEnd.Load()))
		if s.activeRequests.Load() == 0 && quiet >= answerFlushTime || s.openConns.Load() == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			if s.activeRequests.Load() == 0 {
				return nil
			}
			return fmt.Errorf("waiting for requests over HTTP/3 to finish: %w", ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Close aborts all connections.
func (s *Server) Close() {
	_ = s.httpServer.Close() // its only error is that it is closed
	_ = s.listener.Close()   // its only error is that it is closed
	_ = s.transport.Close()  // its only error is that it is closed
}

// limitedListener bounds the accepted connections.
type limitedListener struct {
	*quic.Listener
	server *Server
}

// excessiveLoad is H3_EXCESSIVE_LOAD (RFC 9114, 8.1).
const excessiveLoad = quic.ApplicationErrorCode(http3.ErrCodeExcessiveLoad)

// Accept returns the next connection within the limit.
func (l *limitedListener) Accept(ctx context.Context) (*quic.Conn, error) {
	for {
		c, err := l.Listener.Accept(ctx)
		if err != nil {
			return nil, err
		}
		if l.server.openConns.Add(1) <= int64(l.server.cfg.MaxConnections) {
			context.AfterFunc(c.Context(), func() { l.server.openConns.Add(-1) })
			return c, nil
		}
		l.server.openConns.Add(-1)
		l.server.cfg.OnRefused("crowd")
		_ = c.CloseWithError(excessiveLoad, "too many connections") // best effort
	}
}
