package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Server serves an http.Server's handler, with its limits, times and hooks, on connections of its own. Those on which a
// request comes that is not of the usual shape it hands over, to the http.Server itself.
//
// It has one goroutine for a connection and none beside it: that a client has left during a request, the kernel tells one
// watcher for all.
type Server struct {
	std     *http.Server
	handler http.Handler
	context func(context.Context, net.Conn) context.Context // the http.Server's ConnContext
	between func(net.Listener) net.Listener
	inClear func(net.Conn, [5]byte)
	odd     *handover

	mu        sync.Mutex
	conns     map[*serverConn]struct{}
	listeners map[net.Listener]struct{}
	watch     *watcher
	stopping  atomic.Bool
	wg        sync.WaitGroup // of net/http's accepting
}

// NewServer makes a Server of std, which has a handler and is not changed from now on. between, where it is given, wraps the
// listener from which std has the connections that are handed over to it.
func NewServer(std *http.Server, between func(net.Listener) net.Listener) *Server {
	s := &Server{std: std, handler: std.Handler, between: between, conns: map[*serverConn]struct{}{}, listeners: map[net.Listener]struct{}{}}
	std.Handler = http.HandlerFunc(s.serveOdd)
	own := std.ConnContext
	s.context = own
	std.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if b, ok := c.(*begun); ok && b.peer != nil {
			ctx = withPeer(ctx, b.peer)
		}
		if own != nil {
			ctx = own(ctx, c)
		}
		return ctx
	}
	return s
}

// InClear has f answer who speaks no TLS where it is expected, instead of this server: it is given what came first, and
// closes nothing. Call it before anything is served.
func (s *Server) InClear(f func(c net.Conn, first [5]byte)) { s.inClear = f }

type peerKey struct{}

func withPeer(ctx context.Context, peer *tls.ConnectionState) context.Context {
	return context.WithValue(ctx, peerKey{}, peer)
}

// serveOdd is the handler for what net/http serves. It cannot see TLS below a connection of which something was read
// before, and handlers judge by that.
func (s *Server) serveOdd(w http.ResponseWriter, r *http.Request) {
	if peer, ok := r.Context().Value(peerKey{}).(*tls.ConnectionState); ok && r.TLS == nil {
		r.TLS = peer
	}
	s.handler.ServeHTTP(w, r)
}

// direct is a wrapped connection whose bytes are those of the TCP connection below.
type direct interface{ Direct() *net.TCPConn }

// lowest is the TCP connection at the bottom of another; nil when there is none. Only of one that has no layers the
// descriptor may be read.
func lowest(c net.Conn) *net.TCPConn {
	for {
		switch b := c.(type) {
		case *net.TCPConn:
			return b
		case direct:
			return b.Direct()
		case interface{ NetConn() net.Conn }:
			c = b.NetConn()
		default:
			return nil
		}
	}
}

// Serve accepts connections until the listener or the server is closed, as http.Server's Serve does.
func (s *Server) Serve(l net.Listener) error { return s.serve(l, nil) }

// ServeTLS is Serve over TLS, with the http.Server's TLSConfig.
func (s *Server) ServeTLS(l net.Listener, certFile, keyFile string) error {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.std.TLSConfig != nil {
		cfg = s.std.TLSConfig.Clone()
	}
	if s.std.TLSNextProto == nil && !slices.Contains(cfg.NextProtos, "h2") {
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
	s.std.TLSConfig = cfg.Clone() // it has to know that HTTP/2 may come, and changes what it is given
	return s.serve(l, cfg)
}

func (s *Server) serve(l net.Listener, cfg *tls.Config) error {
	if err := s.begin(l); err != nil {
		_ = l.Close() // it was never used
		return err
	}
	defer s.forget(l)
	base := context.Background()
	if s.std.BaseContext != nil {
		base = s.std.BaseContext(l)
	}
	base = context.WithValue(base, http.ServerContextKey, s.std)
	for wait := time.Duration(0); ; {
		c, err := l.Accept()
		if s.stopping.Load() {
			if err == nil {
				_ = c.Close() // too late
			}
			return http.ErrServerClosed
		}
		if err != nil {
			var t interface{ Temporary() bool }
			if !errors.As(err, &t) || !t.Temporary() {
				return err
			}
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			s.logf("accepting a connection: %v; trying again in %v", err, wait)
			time.Sleep(wait)
			continue
		}
		wait = 0
		s.take(c, cfg, base)
	}
}

// begin opens what is shared by all connections.
func (s *Server) begin(l net.Listener) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Load() {
		return http.ErrServerClosed
	}
	if s.odd == nil {
		s.odd = newHandover(l.Addr())
		var odd net.Listener = s.odd
		if s.between != nil {
			odd = s.between(odd)
		}
		s.wg.Go(func() { _ = s.std.Serve(odd) }) // it ends when the server does
	}
	if s.watch == nil {
		if s.watch, err = newWatcher(); err != nil {
			return err
		}
	}
	s.listeners[l] = struct{}{}
	return nil
}

func (s *Server) forget(l net.Listener) {
	_ = l.Close() // closing twice is the normal case
	s.mu.Lock()
	delete(s.listeners, l)
	s.mu.Unlock()
}

// take serves a connection, here when its descriptor can be watched.
func (s *Server) take(accepted net.Conn, cfg *tls.Config, base context.Context) {
	tcp := lowest(accepted)
	if tcp == nil || s.watch == nil {
		if cfg != nil {
			accepted = tls.Server(accepted, cfg)
		}
		s.odd.give(accepted)
		return
	}
	c := &serverConn{s: s, accepted: accepted, tcp: tcp, born: time.Now()}
	if s.context != nil {
		base = s.context(base, accepted)
	}
	c.base = context.WithValue(base, http.LocalAddrContextKey, accepted.LocalAddr())
	c.outlet = newOutlet(accepted, tcp)
	if cfg != nil {
		c.link = newLink(tls.Server(c.outlet, cfg))
	} else {
		c.link = newLink(accepted)
	}
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	c.hook(http.StateNew)
	go c.serve()
}

// Shutdown takes nothing new, closes idle connections, and waits for the others until ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	err := s.std.Shutdown(ctx)
	for wait := time.Millisecond; err == nil; wait = min(2*wait, 200*time.Millisecond) {
		if s.closeIdle() == 0 {
			s.end()
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

// Close ends everything at once.
func (s *Server) Close() error {
	s.stop()
	err := s.std.Close()
	s.mu.Lock()
	for c := range s.conns {
		abort(c.accepted)
		c.gone()
	}
	s.mu.Unlock()
	s.end()
	return err
}

func (s *Server) stop() {
	s.stopping.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.listeners {
		_ = l.Close() // its Serve returns
	}
	if s.odd != nil {
		_ = s.odd.Close() // never fails
	}
}

// end closes the watcher. Handlers that run on after Close lose nothing by it.
func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch.close()
	s.wg.Wait()
}

// newFor is how long a connection may have sent nothing and still be waited for.
const newFor = 5 * time.Second

// closeIdle closes connections without a request, and counts those that are left.
func (s *Server) closeIdle() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if c.state.CompareAndSwap(connIdle, connClosing) || time.Since(c.born) > newFor && c.state.CompareAndSwap(connNew, connClosing) {
			abort(c.accepted)
		}
	}
	return len(s.conns)
}

func (s *Server) logf(format string, args ...any) {
	if s.std.ErrorLog != nil {
		s.std.ErrorLog.Printf(format, args...)
		return
	}
	log.Printf(format, args...)
}

// handover is the listener from which net/http has the connections that are not served here.
type handover struct {
	addr  net.Addr
	conns chan net.Conn
	over  chan struct{}
	once  sync.Once
}

func newHandover(addr net.Addr) *handover {
	return &handover{addr: addr, conns: make(chan net.Conn), over: make(chan struct{})}
}

func (h *handover) give(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.over:
		_ = c.Close() // nobody serves it any more
	}
}

// Accept implements net.Listener.
func (h *handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.over:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handover) Close() error {
	h.once.Do(func() { close(h.over) })
	return nil
}

// Addr implements net.Listener.
func (h *handover) Addr() net.Addr { return h.addr }

// begun is a connection of which some bytes were read before.
type begun struct {
	net.Conn
	first []byte
	peer  *tls.ConnectionState // nil without TLS
}

// Read implements net.Conn.
func (b *begun) Read(p []byte) (int, error) {
	if len(b.first) == 0 {
		return b.Conn.Read(p)
	}
	n := copy(p, b.first)
	b.first = b.first[n:]
	return n, nil
}

// CloseWrite lets the other side read on for a while, as net/http does before it closes.
func (b *begun) CloseWrite() error {
	if c, ok := b.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// NetConn is the connection below.
func (b *begun) NetConn() net.Conn { return b.Conn }
