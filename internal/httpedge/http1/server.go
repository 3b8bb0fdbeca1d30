package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/backoff"
)

// Server serves the handler of an http.Server, with its limits, timeouts and hooks, on its own connections. A
// connection with an unusual request is handed to the http.Server itself.
//
// It uses one goroutine per connection. One watcher for all connections learns from the kernel when a client
// has closed its connection during a request.
type Server struct {
	httpServer   *http.Server
	handler      http.Handler
	connContext  func(context.Context, net.Conn) context.Context // the http.Server's ConnContext
	wrapFallback func(net.Listener) net.Listener
	onPlaintext  func(net.Conn, [5]byte)
	fallback     *fallbackListener
	lingerTime   time.Duration // of connections marked by LingerAtClose

	mu         sync.Mutex
	conns      map[*serverConn]struct{}
	listeners  map[net.Listener]struct{}
	watcher    *hangupWatcher
	stopping   atomic.Bool
	stopped    chan struct{}  // closed when stopping is set
	closed     bool           // Close was called
	adopting   int            // connections on their way from a request loop to conns
	loopConfig *LoopConfig    // nil: no request loop
	loop       *requestLoop   // nil until it serves a listener
	fallbackWG sync.WaitGroup // Serve of the net/http fallback
}

// NewServer creates a Server from std, which must have a handler and must not change afterwards. between, if
// not nil, wraps the listener through which std gets the connections handed to it.
func NewServer(std *http.Server, between func(net.Listener) net.Listener) *Server {
	s := &Server{httpServer: std, handler: std.Handler, wrapFallback: between, lingerTime: lingerTime, stopped: make(chan struct{}), conns: map[*serverConn]struct{}{}, listeners: map[net.Listener]struct{}{}}
	std.Handler = http.HandlerFunc(s.serveFallback)
	own := std.ConnContext
	s.connContext = own
	std.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if b, ok := c.(*prereadConn); ok {
			ctx = context.WithValue(ctx, fallbackConnKey{}, b)
		}
		if own != nil {
			ctx = own(ctx, c)
		}
		return ctx
	}
	return s
}

// SetPlaintextHandler makes f handle connections that do not use TLS where it is expected. f receives the
// connection and its first bytes, and closes nothing. It must be called before anything is served.
func (s *Server) SetPlaintextHandler(f func(c net.Conn, first [5]byte)) { s.onPlaintext = f }

// SetLoop serves plaintext connections by a request loop, where the platform has one (Linux). The loop serves what its
// handler accepts; everything else goes through the server as without it. It must be called before anything is served.
func (s *Server) SetLoop(c *LoopConfig) { s.loopConfig = c }

type fallbackConnKey struct{}

// LingerAtClose keeps the connection of r half open when the server closes it, until the client has sent what it is
// sending, within lingerTime and lingerBytes. A handler calls it when its response may end before the request body does,
// on a connection that ends with the response: net/http closes such a connection at once if the body is being read by
// another goroutine at that moment. The client would get a reset, and a transport that is writing the body then returns
// the error of its write in place of the response. It has no effect on connections of other servers.
func LingerAtClose(r *http.Request) {
	if c, ok := r.Context().Value(fallbackConnKey{}).(*prereadConn); ok {
		c.lingers.Store(true)
	}
}

// serveFallback is the handler for requests served by net/http. net/http does not detect TLS below a connection
// with bytes read in advance, but handlers depend on it.
func (s *Server) serveFallback(w http.ResponseWriter, r *http.Request) {
	if c, ok := r.Context().Value(fallbackConnKey{}).(*prereadConn); ok && r.TLS == nil {
		r.TLS = c.tlsState
	}
	s.handler.ServeHTTP(w, r)
}

// tcpUnwrapper is a wrapped connection whose bytes are those of the underlying TCP connection.
type tcpUnwrapper interface{ UnderlyingTCPConn() *net.TCPConn }

// bottomTCPConn returns the TCP connection below c, or nil. The descriptor may be read only if there is no
// layer in between.
func bottomTCPConn(c net.Conn) *net.TCPConn {
	for {
		switch b := c.(type) {
		case *net.TCPConn:
			return b
		case tcpUnwrapper:
			return b.UnderlyingTCPConn()
		case interface{ NetConn() net.Conn }:
			c = b.NetConn()
		default:
			return nil
		}
	}
}

// Serve accepts connections until the listener or the server is closed, as http.Server's Serve does.
func (s *Server) Serve(l net.Listener) error { return s.serveListener(l, nil) }

// ServeTLS is Serve over TLS, with the http.Server's TLSConfig.
func (s *Server) ServeTLS(l net.Listener, certFile, keyFile string) error {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.httpServer.TLSConfig != nil {
		cfg = s.httpServer.TLSConfig.Clone()
	}
	if s.httpServer.TLSNextProto == nil && !slices.Contains(cfg.NextProtos, "h2") {
		cfg.NextProtos = append([]string{"h2"}, cfg.NextProtos...)
	}
	if !slices.Contains(cfg.NextProtos, "http/1.1") {
		cfg.NextProtos = append(slices.Clone(cfg.NextProtos), "http/1.1")
	}
	if certFile != "" || keyFile != "" {
		cert, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return fmt.Errorf("loading the server's certificate: %w", err)
		}
		cfg.Certificates = append(slices.Clone(cfg.Certificates), cert)
	}
	s.httpServer.TLSConfig = cfg.Clone() // it must know that HTTP/2 is possible, and modifies its configuration
	return s.serveListener(l, cfg)
}

func (s *Server) serveListener(l net.Listener, cfg *tls.Config) error {
	if err := s.addListener(l); err != nil {
		_ = l.Close() // never used
		return err
	}
	defer s.removeListener(l)
	base := context.Background()
	if s.httpServer.BaseContext != nil {
		base = s.httpServer.BaseContext(l)
	}
	base = context.WithValue(base, http.ServerContextKey, s.httpServer)
	if cfg == nil {
		if err, served := s.serveOnLoop(l, base); served {
			return err
		}
	}
	waits := backoff.Doubling{First: 5 * time.Millisecond, Longest: time.Second}
	for {
		c, err := l.Accept()
		if s.stopping.Load() {
			if err == nil {
				_ = c.Close() // the server is closed
			}
			return http.ErrServerClosed
		}
		if err != nil {
			var t interface{ Temporary() bool }
			if !errors.As(err, &t) || !t.Temporary() {
				return err
			}
			wait := waits.NextDelay()
			s.logf("accepting a connection: %v; trying again in %v", err, wait)
			time.Sleep(wait)
			continue
		}
		waits.Reset()
		s.startConn(c, cfg, base)
	}
}

// addListener starts what all connections share.
func (s *Server) addListener(l net.Listener) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Load() {
		return http.ErrServerClosed
	}
	if s.fallback == nil {
		s.fallback = newFallbackListener(l.Addr())
		var odd net.Listener = s.fallback
		if s.wrapFallback != nil {
			odd = s.wrapFallback(odd)
		}
		s.fallbackWG.Go(func() { _ = s.httpServer.Serve(odd) }) // it ends when the server does
	}
	if s.watcher == nil {
		if s.watcher, err = newHangupWatcher(); err != nil {
			return err
		}
	}
	s.listeners[l] = struct{}{}
	return nil
}

func (s *Server) removeListener(l net.Listener) {
	_ = l.Close() // closing twice is the normal case
	s.mu.Lock()
	delete(s.listeners, l)
	s.mu.Unlock()
}

// startConn serves a connection, on this fast path if its descriptor can be watched.
func (s *Server) startConn(accepted net.Conn, cfg *tls.Config, base context.Context) {
	tcp := bottomTCPConn(accepted)
	if tcp == nil || s.watcher == nil {
		if cfg != nil {
			accepted = tls.Server(accepted, cfg)
		}
		s.fallback.deliverConn(accepted)
		return
	}
	c := s.newConn(accepted, tcp, cfg, base)
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	c.reportState(http.StateNew)
	go c.serveConn()
}

// newConn makes a connection of this package of one that was accepted, over TLS if cfg is not nil.
func (s *Server) newConn(accepted net.Conn, tcp *net.TCPConn, cfg *tls.Config, base context.Context) *serverConn {
	c := &serverConn{server: s, accepted: accepted, tcpConn: tcp, acceptedAt: time.Now()}
	if s.connContext != nil {
		base = s.connContext(base, accepted)
	}
	c.baseCtx = context.WithValue(base, http.LocalAddrContextKey, accepted.LocalAddr())
	c.clientWriter = newClientWriter(accepted, tcp)
	if cfg != nil {
		c.readBufConn = newReadBufConn(tls.Server(c.clientWriter, cfg))
	} else {
		c.readBufConn = newReadBufConn(accepted)
	}
	return c
}

// Shutdown stops accepting, closes idle connections, and waits for the others until ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stopAccepting()
	err := s.httpServer.Shutdown(ctx)
	for wait := time.Millisecond; err == nil; wait = min(2*wait, 200*time.Millisecond) {
		if s.closeIdleConns() == 0 {
			s.stopWatcher()
			s.awaitLoop()
			return nil
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-t.C:
		}
		t.Stop()
	}
	return err
}

// Close closes all listeners and connections at once.
func (s *Server) Close() error {
	s.stopAccepting()
	err := s.httpServer.Close()
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		abortConn(c.accepted)
		c.handleClientGone()
	}
	if s.loop != nil {
		s.loop.closeAll()
	}
	s.mu.Unlock()
	s.stopWatcher()
	s.awaitLoop()
	return err
}

// headTimeout bounds the time for a request head to arrive, idleTimeout the wait for the next request.
func (s *Server) headTimeout() time.Duration {
	if s.httpServer.ReadHeaderTimeout > 0 {
		return s.httpServer.ReadHeaderTimeout
	}
	return s.httpServer.ReadTimeout
}

func (s *Server) idleTimeout() time.Duration {
	if s.httpServer.IdleTimeout > 0 {
		return s.httpServer.IdleTimeout
	}
	return s.httpServer.ReadTimeout
}

// awaitLoop waits until the request loop has ended. All its connections must be closed or closing.
func (s *Server) awaitLoop() {
	s.mu.Lock()
	l := s.loop
	s.mu.Unlock()
	if l != nil {
		l.awaitEnd()
	}
}

func (s *Server) stopAccepting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopping.Swap(true) {
		close(s.stopped)
	}
	if s.loop != nil {
		s.loop.stopAccepting()
	}
	for l := range s.listeners {
		_ = l.Close() // its Serve returns
	}
	if s.fallback != nil {
		_ = s.fallback.Close() // never fails
	}
}

// stopWatcher closes the watcher. Handlers that still run after Close do not need it.
func (s *Server) stopWatcher() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watcher.closeAndWait()
	s.fallbackWG.Wait()
}

// newConnGrace is how long Shutdown waits for a connection that has not sent anything yet.
const newConnGrace = 5 * time.Second

// closeIdleConns closes connections without a request and returns the number of the others.
func (s *Server) closeIdleConns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if c.state.CompareAndSwap(connIdle, connClosing) || time.Since(c.acceptedAt) > newConnGrace && c.state.CompareAndSwap(connNew, connClosing) {
			abortConn(c.accepted)
		}
	}
	n := len(s.conns) + s.adopting
	if s.loop != nil {
		n += s.loop.closeIdle()
	}
	return n
}

func (s *Server) logf(format string, args ...any) {
	if s.httpServer.ErrorLog != nil {
		s.httpServer.ErrorLog.Printf(format, args...)
		return
	}
	log.Printf(format, args...)
}

// fallbackListener is the listener through which net/http gets the connections that are not served here.
type fallbackListener struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newFallbackListener(addr net.Addr) *fallbackListener {
	return &fallbackListener{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (h *fallbackListener) deliverConn(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.closed:
		_ = c.Close() // no server accepts it any more
	}
}

// Accept implements net.Listener.
func (h *fallbackListener) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *fallbackListener) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Addr implements net.Listener.
func (h *fallbackListener) Addr() net.Addr { return h.addr }

// prereadConn is a connection with bytes read in advance.
type prereadConn struct {
	net.Conn
	prefix   []byte
	tlsState *tls.ConnectionState // nil without TLS

	lingerTime time.Duration
	lingers    atomic.Bool // set by LingerAtClose
}

// Read implements net.Conn.
func (b *prereadConn) Read(p []byte) (int, error) {
	if len(b.prefix) == 0 {
		return b.Conn.Read(p)
	}
	n := copy(p, b.prefix)
	b.prefix = b.prefix[n:]
	return n, nil
}

// CloseWrite closes the write side and lets the other side read for a while, as net/http does before it closes.
func (b *prereadConn) CloseWrite() error {
	if c, ok := b.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// Close implements net.Conn.
func (b *prereadConn) Close() error {
	if b.lingers.Swap(false) && b.CloseWrite() == nil && b.SetReadDeadline(time.Now().Add(b.lingerTime)) == nil {
		_, _ = io.CopyN(io.Discard, b.Conn, lingerBytes) // the content does not matter
	}
	return b.Conn.Close()
}

// NetConn returns the underlying connection.
func (b *prereadConn) NetConn() net.Conn { return b.Conn }

// handlerStackBytes is the approximate stack size of a goroutine that serves a request, in bytes.
const handlerStackBytes = 9 << 10

// growStack grows the stack of a new goroutine at once. Otherwise it would grow three times during a request,
// each time copying more: 3 % of the cost of a short stream.
//
//go:noinline
func growStack(at int) byte {
	var room [handlerStackBytes]byte
	return room[at%handlerStackBytes]
}
