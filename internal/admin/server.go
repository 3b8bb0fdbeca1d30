package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/certfile"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// Config of a Server.
type Config struct {
	// Socket is the path of the unix socket for operators on this machine. Empty: none.
	Socket string
	// Role, Node and Fleet are what the node registers itself as, where operators' commands on this machine look for it.
	Role, Node, Fleet string
	// Listen is host:port for operators elsewhere, who must show a certificate of the operator role. Empty: none.
	Listen string
	// Metrics is host:port for /metrics, /healthz and /readyz, in the clear. Empty: none.
	Metrics string
	// Grants are the roles of callers from the network. Without a grant for a certificate, every operator's certificate
	// has the role Admin; without one for a token, nobody comes in without a certificate.
	Grants []Grant
	// Certs are needed with Listen.
	Certs *identity.Certs
	// Backend answers.
	Backend Backend
	// Gatherer is what /metrics shows. Nil: no /metrics.
	Gatherer prometheus.Gatherer
	// Certificates are this node's: /metrics and the status show when they end, and warnings are written before that.
	Certificates certfile.Expiries
	// Log receives what an operator should know. Nil discards it.
	Log *slog.Logger
}

// Server is one node's admin interface: New, Start, Stop, once.
type Server struct {
	cfg   Config
	log   *slog.Logger
	doors []door
	entry string // in the runtime folder
	wg    sync.WaitGroup
	stop  context.CancelFunc // ends what Start began beside the doors; nil before
}

// door is one listener with who may come in.
type door struct {
	listener net.Listener
	http     *http.Server
	socket   string // to remove at the end
}

// New binds the listeners.
func New(cfg Config) (*Server, error) {
	s := &Server{cfg: cfg, log: telemetry.Logger(cfg.Log)}
	if err := check(cfg.Grants); err != nil {
		return nil, fmt.Errorf("admin.grants: %w", err)
	}
	err := errors.Join(s.openSocket(), s.openListen(), s.openMetrics())
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *Server) openSocket() error {
	if s.cfg.Socket == "" {
		return nil
	}
	l, err := listenSocket(s.cfg.Socket)
	if err != nil {
		return err
	}
	s.add(l, s.api(), s.cfg.Socket)
	if s.entry, err = register(Running{Role: s.cfg.Role, Node: s.cfg.Node, Socket: s.cfg.Socket, Fleet: s.cfg.Fleet}); err != nil {
		s.log.Warn("commands on this machine do not find this node by themselves, name its socket with --server", "socket", s.cfg.Socket, telemetry.Err(err))
	}
	return nil
}

func (s *Server) openListen() error {
	if s.cfg.Listen == "" {
		return nil
	}
	if s.cfg.Certs == nil {
		return errors.New("admin.listen needs certificates: set tls, or use admin.socket alone")
	}
	l, err := listenTCP(s.cfg.Listen, "admin")
	if err != nil {
		return err
	}
	door := s.cfg.Certs.Server(alpn, operatorsOnly)
	if s.takesTokens() {
		door = s.cfg.Certs.OpenServer(alpn, operatorsOnly)
	}
	s.add(tls.NewListener(l, door), s.api(), "")
	return nil
}

func (s *Server) openMetrics() error {
	if s.cfg.Metrics == "" {
		return nil
	}
	l, err := listenTCP(s.cfg.Metrics, "metrics")
	if err != nil {
		return err
	}
	s.add(l, s.plain(), "")
	return nil
}

const alpn = "http/1.1"

func operatorsOnly(id identity.ID) error {
	if id.Role != identity.RoleOperator {
		return fmt.Errorf("role %s may not administer: use a certificate of the operator role", id.Role)
	}
	return nil
}

func (s *Server) add(l net.Listener, h http.Handler, socket string) {
	s.doors = append(s.doors, door{listener: l, socket: socket, http: &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      2 * time.Minute, // a profile takes 30 s by default
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ConnContext:       withUID,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}})
}

// Start serves until Stop. It returns at once: the listeners are open since New.
func (s *Server) Start(ctx context.Context) error {
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.wg.Go(func() { s.cfg.Certificates.Run(ctx, s.log) })
	for _, d := range s.doors {
		s.wg.Go(func() {
			if err := d.http.Serve(d.listener); !errors.Is(err, http.ErrServerClosed) {
				s.log.Error("admin listener failed", telemetry.Err(err))
			}
		})
	}
	return nil
}

// SocketAddr is the path of the unix socket, or empty.
func (s *Server) SocketAddr() string { return s.cfg.Socket }

// ListenAddr is the bound address for operators elsewhere, or nil.
func (s *Server) ListenAddr() net.Addr { return s.addr(s.cfg.Listen, 1) }

// MetricsAddr is the bound address of the metrics listener, or nil.
func (s *Server) MetricsAddr() net.Addr { return s.addr(s.cfg.Metrics, 2) }

// addr finds the door by its place in the order that New opens them.
func (s *Server) addr(set string, place int) net.Addr {
	if set == "" {
		return nil
	}
	i := 0
	for k, c := range []string{s.cfg.Socket, s.cfg.Listen} {
		if k < place && c != "" {
			i++
		}
	}
	return s.doors[i].listener.Addr()
}

// Stop lets calls under way finish until ctx ends, then cuts them.
func (s *Server) Stop(ctx context.Context) error {
	var errs []error
	if s.stop != nil {
		s.stop()
	}
	for _, d := range s.doors {
		if err := d.http.Shutdown(ctx); err != nil {
			errs = append(errs, err, d.http.Close())
		}
	}
	s.close()
	s.wg.Wait()
	return errors.Join(errs...)
}

// close also serves a Server that was never started.
func (s *Server) close() {
	for _, d := range s.doors {
		d.listener.Close()
		if d.socket != "" {
			os.Remove(d.socket)
		}
	}
	if s.entry != "" {
		os.Remove(s.entry)
	}
}
