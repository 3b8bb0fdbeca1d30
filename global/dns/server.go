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

// Server answers on its addresses until it is stopped. It cannot be restarted.
type Server struct {
	cfg     Config
	handler handler
	ports   []*boundPort
	conns   *connTable
	tls     *tls.Config
	direct  directPath
	slow    *slowPath
	kernel  *kernelPath // nil: none
	readers sync.WaitGroup
	started atomic.Bool
	stopped atomic.Bool
	done    sync.WaitGroup
}

// New binds all addresses, so that Addrs is known before Start. An error names the address that could not be bound.
func New(cfg Config) (*Server, error) {
	if cfg.Snapshot == nil {
		return nil, errors.New("dns server: Snapshot is missing")
	}
	if cfg.NoSockets {
		cfg.Listen, cfg.TLSListen = nil, nil
	} else if len(cfg.Listen) == 0 {
		return nil, errors.New("dns server: no address to listen on: set one, such as \"0.0.0.0:53\"")
	}
	if cfg.MaxTCPConns <= 0 {
		cfg.MaxTCPConns = defaultMaxTCPConns
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Observe == nil {
		cfg.Observe = func(QueryEvent) {}
	}
	if cfg.Readers <= 0 {
		cfg.Readers = DefaultReaders()
	}
	if cfg.SlowGoroutines <= 0 {
		cfg.SlowGoroutines = initialProcs
	}
	s := &Server{
		cfg: cfg,
		handler: handler{
			snapshot: cfg.Snapshot, secrets: cfg.CookieSecrets, limiter: newResponseLimiter(cfg.ResponseRate, cfg.SlipEvery), nsid: cfg.NSID,
			version: cfg.Version, explain: cfg.Explain, tcpIdle: uint16(idleTimeout / (100 * time.Millisecond)),
		},
		conns: newConnTable(cfg.MaxTCPConns),
		slow:  newSlowPath(),
	}
	for _, addr := range cfg.Listen {
		p, err := listenPort(addr, &cfg)
		if err != nil {
			s.closePorts()
			s.releasePorts()
			return nil, fmt.Errorf("dns server: %w", err)
		}
		s.ports = append(s.ports, p)
	}
	s.openKernelPath()
	if err := s.openTLS(); err != nil {
		s.kernel.stop()
		s.closePorts()
		s.releasePorts()
		return nil, fmt.Errorf("dns server: %w", err)
	}
	return s, nil
}

// Addrs returns the bound addresses, in the order of Config.Listen and then of Config.TLSListen.
func (s *Server) Addrs() []netip.AddrPort {
	out := make([]netip.AddrPort, len(s.ports))
	for i, p := range s.ports {
		out[i] = p.addr
	}
	return out
}

// Start begins to answer and returns at once. It ignores ctx: Stop ends the server.
func (s *Server) Start(context.Context) error {
	if s.stopped.Load() || s.started.Swap(true) {
		return errors.New("dns server: it was started before; create a new one")
	}
	s.slow.allocateJobs()
	s.kernel.start()
	for _, p := range s.ports {
		for _, sock := range p.udp {
			for range readersPerSocket {
				s.readers.Go(newUDPReader(s, sock).readLoop)
			}
		}
		s.done.Go(func() { s.serveTCP(p) })
	}
	for range s.cfg.SlowGoroutines {
		s.done.Go(s.serveSlow)
	}
	s.done.Go(func() {
		s.readers.Wait()
		close(s.slow.readyJobs)
	})
	return nil
}

// Stop closes the sockets, lets open connections finish their current queries, and waits for that until ctx ends.
func (s *Server) Stop(ctx context.Context) error {
	if s.stopped.Swap(true) {
		return nil
	}
	s.kernel.stop()
	s.closePorts()
	defer s.releasePorts()
	s.conns.finishAll()
	finished := make(chan struct{})
	go func() {
		s.done.Wait()
		close(finished)
	}()
	select {
	case <-finished:
		return nil
	case <-ctx.Done():
		s.conns.closeAll()
		<-finished // every read and write has failed by now
		return fmt.Errorf("stopping dns server: open connections were closed before their answers were sent: %w", ctx.Err())
	}
}

func (s *Server) closePorts() {
	for _, p := range s.ports {
		p.stopReading()
	}
}

func (s *Server) releasePorts() {
	for _, p := range s.ports {
		p.releaseSockets()
	}
}

// serveSlow answers until all readers have ended and the queue is empty.
func (s *Server) serveSlow() {
	out := make([]byte, 2*maxUDPSize)
	for j := range s.slow.readyJobs {
		if reply, ok := s.answerAndObserve(out, j.msg[:j.n], j.from.Addr(), UDP); ok {
			j.sock.sendReply(reply, replyControl(j.oob[:j.oobn]), j.from)
		}
		s.slow.freeJobs <- j
	}
}

// answerAndObserve answers one message and calls the observer.
func (s *Server) answerAndObserve(dst, msg []byte, from netip.Addr, by Transport) (out []byte, ok bool) {
	begin := time.Now()
	event := QueryEvent{Count: 1, Rcode: RcodeDropped, Service: -1, Transport: by}
	defer func() {
		if r := recover(); r != nil { // a panic costs the answer of one message only
			s.cfg.Log.Error("answering a message panicked", "panic", fmt.Sprint(r))
			out, ok = nil, false
		}
		event.Duration = time.Since(begin)
		s.cfg.Observe(event)
	}()
	out, event, ok = s.handler.handleMessage(dst, msg, from, by)
	return out, ok
}

// directPath answers the questions of Server.Answer: it holds one fast path.
type directPath struct {
	mu   sync.Mutex
	fast fastPath
}

// Answer appends to dst[:0] the answer to a UDP message; ok is false if there is none. It serves callers that receive
// queries without a socket, uses the same two paths, and is not counted.
func (s *Server) Answer(dst, msg []byte, from netip.Addr) (out []byte, ok bool) {
	s.direct.mu.Lock()
	defer s.direct.mu.Unlock()
	if s.direct.fast.handler == nil {
		s.direct.fast = newFastPath(&s.handler)
	}
	if cap(dst) < maxUDPSize {
		dst = make([]byte, maxUDPSize)
	}
	dst = dst[:cap(dst)]
	if n, _, quick := s.direct.fast.answerQuery(dst, msg, from, time.Now()); quick {
		return dst[:n], n > 0
	}
	return s.answerAndObserve(dst[:0], msg, from, UDP)
}
