package dns

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Server answers on its addresses until it is stopped. It is used once.
type Server struct {
	cfg     Config
	handler handler
	ports   []*port
	conns   *connections
	tls     *tls.Config
	inHand  inHand
	slow    *slowPath
	readers sync.WaitGroup
	started atomic.Bool
	stopped atomic.Bool
	done    sync.WaitGroup
}

// New binds all addresses, so that Addrs is known before Start. An error says which address could not be had.
func New(cfg Config) (*Server, error) {
	if cfg.View == nil {
		return nil, errors.New("dns server: View is missing")
	}
	if cfg.Deaf {
		cfg.Listen, cfg.TLSListen = nil, nil
	} else if len(cfg.Listen) == 0 {
		return nil, errors.New("dns server: no address to listen on; write one such as \"0.0.0.0:53\"")
	}
	if cfg.MaxTCP <= 0 {
		cfg.MaxTCP = defaultMaxTCP
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Observe == nil {
		cfg.Observe = func(Event) {}
	}
	if cfg.Readers <= 0 {
		cfg.Readers = Readers()
	}
	if cfg.Slow <= 0 {
		cfg.Slow = processors
	}
	s := &Server{
		cfg: cfg,
		handler: handler{
			view: cfg.View, secrets: cfg.Secrets, limiter: newLimiter(cfg.Rate, cfg.Slip), nsid: cfg.NSID,
			version: cfg.Version, debug: cfg.Explain, idle: uint16(idleTimeout / (100 * time.Millisecond)),
		},
		conns: newConnections(cfg.MaxTCP),
		slow:  newSlowPath(),
	}
	for _, addr := range cfg.Listen {
		p, err := listen(addr, &cfg)
		if err != nil {
			s.closePorts()
			s.release()
			return nil, fmt.Errorf("dns server: %w", err)
		}
		s.ports = append(s.ports, p)
	}
	if err := s.openTLS(); err != nil {
		s.closePorts()
		s.release()
		return nil, fmt.Errorf("dns server: %w", err)
	}
	return s, nil
}

// Addrs are the addresses that the server is bound to, in the order of Config.Listen and then of Config.TLSListen.
func (s *Server) Addrs() []netip.AddrPort {
	out := make([]netip.AddrPort, len(s.ports))
	for i, p := range s.ports {
		out[i] = p.addr
	}
	return out
}

// Start begins to answer and returns at once. It does not watch ctx: Stop ends the server.
func (s *Server) Start(context.Context) error {
	if s.stopped.Load() || s.started.Swap(true) {
		return errors.New("dns server: it was started before; make a new one")
	}
	s.slow.fill()
	for _, p := range s.ports {
		for _, sock := range p.udp {
			for range readersEach {
				s.readers.Go(newReader(s, sock).run)
			}
		}
		s.done.Go(func() { s.serveTCP(p) })
	}
	for range s.cfg.Slow {
		s.done.Go(s.serveSlow)
	}
	s.done.Go(func() {
		s.readers.Wait()
		close(s.slow.ready)
	})
	return nil
}

// Stop closes the sockets, lets open connections finish what they were asked, and waits for that until ctx ends.
func (s *Server) Stop(ctx context.Context) error {
	if s.stopped.Swap(true) {
		return nil
	}
	s.closePorts()
	defer s.release()
	s.conns.finish()
	finished := make(chan struct{})
	go func() {
		s.done.Wait()
		close(finished)
	}()
	select {
	case <-finished:
		return nil
	case <-ctx.Done():
		s.conns.cut()
		<-finished // every read and write has failed by now
		return fmt.Errorf("stopping dns server: connections were cut: %w", ctx.Err())
	}
}

func (s *Server) closePorts() {
	for _, p := range s.ports {
		p.close()
	}
}

func (s *Server) release() {
	for _, p := range s.ports {
		p.release()
	}
}

// answer makes the answer to one message and tells the observer.
func (s *Server) answer(dst, msg []byte, from netip.Addr, by Transport) (out []byte, ok bool) {
	begin := time.Now()
	event := Event{N: 1, Rcode: Dropped, Service: -1, By: by}
	defer func() {
		if r := recover(); r != nil { // one message may cost its own answer, never everybody's
			s.cfg.Log.Error("answering a message panicked", "panic", fmt.Sprint(r))
			out, ok = nil, false
		}
		event.Dur = time.Since(begin)
		s.cfg.Observe(event)
	}()
	out, event, ok = s.handler.handle(dst, msg, from, by)
	return out, ok
}
