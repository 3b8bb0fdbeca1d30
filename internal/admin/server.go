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
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/certfile"
	"github.com/spillway-lb/spillway/internal/console"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// Config of a Server.
type Config struct {
	// Socket is the path of the unix socket for operators on this machine. Empty: none.
	Socket string
	// Role, Node and Fleet identify the node in the runtime folder, where the commands on this machine find it.
	Role, Node, Fleet string
	// Version is the release, for the errors of commands of other releases.
	Version string
	// Listen is host:port for operators on other machines, who authenticate by certificate or token. Empty: none.
	Listen string
	// Metrics is host:port for /metrics, /healthz and /readyz, by plain HTTP. Empty: none.
	Metrics string
	// Grants are the roles of callers from the network. Without a grant for a certificate, every operator's certificate
	// has RoleAdmin. Without one for a token, a certificate is required.
	Grants []RoleGrant
	// Certs are needed with Listen.
	Certs *identity.Certs
	// Backend implements the calls.
	Backend Backend
	// Gatherer provides /metrics. Nil: no /metrics.
	Gatherer prometheus.Gatherer
	// Certificates are this node's. /metrics and the status show when they expire, and warnings are logged before that.
	Certificates certfile.ExpirySource
	// Log receives warnings and errors. Nil discards them.
	Log *slog.Logger
}

// Server is the admin API of one node: New, Start, Stop, once.
type Server struct {
	cfg           Config
	log           *slog.Logger
	console       *console.Console
	listeners     []adminListener
	registryEntry string // path of the entry in the runtime folder
	wg            sync.WaitGroup
	cancel        context.CancelFunc // stops the certificate warnings; nil before Start
}

// adminListener is one listener with its HTTP server.
type adminListener struct {
	listener net.Listener
	server   *http.Server
	socket   string // the path of a socket, removed at the end
}

// New binds the listeners.
func New(cfg Config) (*Server, error) {
	s := &Server{cfg: cfg, log: telemetry.LoggerOrDiscard(cfg.Log)}
	if err := checkGrants(cfg.Grants); err != nil {
		return nil, fmt.Errorf("admin.grants: %w", err)
	}
	s.console = s.newConsole()
	err := errors.Join(s.openSocketListener(), s.openNetworkListener(), s.openMetricsListener())
	if err != nil {
		s.closeListeners()
		return nil, err
	}
	return s, nil
}

func (s *Server) openSocketListener() error {
	if s.cfg.Socket == "" {
		return nil
	}
	l, err := listenSocket(s.cfg.Socket)
	if err != nil {
		return err
	}
	s.addListener(l, s.apiHandler(), s.cfg.Socket)
	if s.registryEntry, err = registerNode(RunningNode{Role: s.cfg.Role, Node: s.cfg.Node, Socket: s.cfg.Socket, Fleet: s.cfg.Fleet}); err != nil {
		s.log.Warn("node is not in the runtime folder: commands on this machine need its socket as --server", "socket", s.cfg.Socket, telemetry.ErrorAttr(err))
	}
	return nil
}

func (s *Server) openNetworkListener() error {
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
	tlsConfig := s.cfg.Certs.ServerTLS(alpn, requireOperator)
	if s.acceptsTokens() {
		tlsConfig = s.cfg.Certs.ServerTLSOptionalClientCert(alpn, requireOperator)
	}
	s.addListener(tls.NewListener(l, tlsConfig), s.apiHandler(), "")
	return nil
}

func (s *Server) openMetricsListener() error {
	if s.cfg.Metrics == "" {
		return nil
	}
	l, err := listenTCP(s.cfg.Metrics, "metrics")
	if err != nil {
		return err
	}
	s.addListener(l, s.publicMux(), "")
	return nil
}

const alpn = "http/1.1"

func requireOperator(id identity.ID) error {
	if id.Role != identity.RoleOperator {
		return fmt.Errorf("role %s has no access to the admin API: use an operator's certificate", id.Role)
	}
	return nil
}

func (s *Server) addListener(l net.Listener, h http.Handler, socket string) {
	s.listeners = append(s.listeners, adminListener{listener: l, socket: socket, server: &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      2 * time.Minute, // a profile takes 30 s by default
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ConnContext:       withPeerUID,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}})
}

// Start serves until Stop. It returns at once.
func (s *Server) Start(ctx context.Context) error {
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.wg.Go(func() { s.cfg.Certificates.WarnExpiring(ctx, s.log) })
	for _, d := range s.listeners {
		s.wg.Go(func() {
			if err := d.server.Serve(d.listener); !errors.Is(err, http.ErrServerClosed) {
				s.log.Error("admin listener failed", telemetry.ErrorAttr(err))
			}
		})
	}
	return nil
}

// SocketAddr returns the path of the unix socket, or "".
func (s *Server) SocketAddr() string { return s.cfg.Socket }

// ListenAddr returns the bound address of admin.listen, or nil.
func (s *Server) ListenAddr() net.Addr { return s.listenerAddr(s.cfg.Listen, 1) }

// MetricsAddr returns the bound address of the metrics listener, or nil.
func (s *Server) MetricsAddr() net.Addr { return s.listenerAddr(s.cfg.Metrics, 2) }

// listenerAddr finds a listener by its position in the order in which New opens them. set is empty if it is not configured.
func (s *Server) listenerAddr(set string, place int) net.Addr {
	if set == "" {
		return nil
	}
	i := 0
	for k, c := range []string{s.cfg.Socket, s.cfg.Listen} {
		if k < place && c != "" {
			i++
		}
	}
	return s.listeners[i].listener.Addr()
}

// Stop lets running calls finish until ctx ends, then closes their connections.
func (s *Server) Stop(ctx context.Context) error {
	var errs []error
	if s.cancel != nil {
		s.cancel()
	}
	s.console.Close() // open streams would keep Shutdown waiting
	for _, d := range s.listeners {
		if err := d.server.Shutdown(ctx); err != nil {
			errs = append(errs, err, d.server.Close())
		}
	}
	s.closeListeners()
	s.wg.Wait()
	return errors.Join(errs...)
}

// closeListeners closes the listeners and removes the sockets, also of a Server that was not started.
func (s *Server) closeListeners() {
	for _, d := range s.listeners {
		d.listener.Close()
		if d.socket != "" {
			os.Remove(d.socket)
		}
	}
	if s.registryEntry != "" {
		os.Remove(s.registryEntry)
	}
}

// listenTCP listens at an address. section is the config section with the key listen, for errors.
func listenTCP(addr, section string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s.listen: %s is in use by another process: stop that process or change %s.listen", section, addr, section)
	}
	if err != nil {
		return nil, fmt.Errorf("%s.listen: %w", section, err)
	}
	return l, nil
}

// maxSocketPathBytes is the lowest limit of the supported systems, in bytes (macOS: 104 with the terminating zero).
const maxSocketPathBytes = 103

// listenSocket creates a socket that only its owner can open. The socket gets a temporary name and is renamed after its mode
// is set, so that no other user can connect in between.
func listenSocket(path string) (net.Listener, error) {
	temp := fmt.Sprintf("%s.%d", path, os.Getpid())
	if len(temp) > maxSocketPathBytes {
		return nil, fmt.Errorf("admin socket %s: the path is too long for a socket: choose a shorter directory", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("creating the admin socket's directory: %w", err)
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return nil, fmt.Errorf("admin socket %s is in use: another node runs with this directory", path)
	}
	os.Remove(temp)
	l, err := net.Listen("unix", temp)
	if err != nil {
		return nil, fmt.Errorf("listening for admin: %w", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // Close would remove the temporary name
	if err := errors.Join(os.Chmod(temp, 0o600), os.Rename(temp, path)); err != nil {
		l.Close()
		os.Remove(temp)
		return nil, fmt.Errorf("placing the admin socket: %w", err)
	}
	return l, nil
}

// Backend implements the calls of the API for one node. A nil function is a call that this tier does not support.
type Backend struct {
	// Status describes the node and the tiers below it.
	Status func(ctx context.Context) (*Status, error)
	// Explain explains the decisions about a request.
	Explain func(ctx context.Context, q ExplainQuery) (*ExplainAnswer, error)
	// Trace returns what the node and the tiers below it have recorded about a request.
	Trace func(ctx context.Context, q TraceQuery) (*TraceAnswer, error)
	// Queue describes the queues of a local instance.
	Queue func(ctx context.Context) (*QueueAnswer, error)
	// Autoscaling returns the replica recommendations of a local instance. An empty model means all models.
	Autoscaling func(ctx context.Context, model string) (*AutoscalingAnswer, error)
	// Uplinks describes the sessions with the tiers above and below.
	Uplinks func(ctx context.Context) (*UplinksAnswer, error)
	// Spec returns the spec in force.
	Spec func(ctx context.Context) (*SpecAnswer, error)
	// SpecNow and DrainsNow are linearizable: they include every write that completed before the call, at any node. They
	// need a leader.
	SpecNow   func(ctx context.Context) (*SpecAnswer, error)
	DrainsNow func(ctx context.Context) (*DrainAnswer, error)
	// Apply puts a new spec in force, or computes its effect. actor is the caller.
	Apply func(ctx context.Context, r ApplyRequest, actor string) (*ApplyAnswer, error)
	// Stage returns the staged spec, and EndStage promotes it or rolls it back.
	Stage    func(ctx context.Context) (*StageAnswer, error)
	EndStage func(ctx context.Context, r StageRequest, actor string) (*StageAnswer, error)
	// Drain and Undrain return once the change is in force on this node.
	Drain   func(ctx context.Context, r DrainRequest, actor string) (*DrainAnswer, error)
	Undrain func(ctx context.Context, path, reason, actor string) (*DrainAnswer, error)
	// Drains lists the drains in force.
	Drains func(ctx context.Context) (*DrainAnswer, error)
	// Tenants lists the tenants with their limits and use.
	Tenants func(ctx context.Context) (*TenantsAnswer, error)
	// Switch returns the region switch in progress or the last one, and ChangeSwitch starts or aborts one.
	Switch       func(ctx context.Context) (*SwitchAnswer, error)
	ChangeSwitch func(ctx context.Context, r SwitchRequest, actor string) (*SwitchAnswer, error)
	// StopLever returns the stop lever, and SetStopLever pulls or releases it.
	StopLever    func(ctx context.Context) (*StopLeverAnswer, error)
	SetStopLever func(ctx context.Context, r StopLeverRequest, actor string) (*StopLeverAnswer, error)
	// Members lists the members of the Raft cluster. AddMember, RemoveMember and TransferLeadership change them.
	Members            func(ctx context.Context) (*MembersAnswer, error)
	AddMember          func(ctx context.Context, r MemberRequest, actor string) (*MembersAnswer, error)
	RemoveMember       func(ctx context.Context, name, reason, actor string) (*MembersAnswer, error)
	TransferLeadership func(ctx context.Context, r LeaderRequest, actor string) (*MembersAnswer, error)
	// Archive returns the replicated state as the content of a file. Restore puts the spec and drains of one in force.
	Archive func(ctx context.Context) (*ArchiveAnswer, error)
	Restore func(ctx context.Context, r ArchiveRequest, actor string) (*RestoreAnswer, error)
	// TestNotifications sends a test event to every webhook of the node.
	TestNotifications func(ctx context.Context, r NotifyTestRequest, actor string) (*NotifyTestAnswer, error)
	// Audit lists the newest changes.
	Audit func(ctx context.Context) (*AuditAnswer, error)
	// Plan returns a plan that the node stores. Epoch 0 is the one in force.
	Plan func(ctx context.Context, epoch uint64) (*PlanAnswer, error)
	// PlanDiff compares two plans. to 0 is the one in force, from 0 the one before to.
	PlanDiff func(ctx context.Context, from, to uint64) (*PlanDiffAnswer, error)
	// PlanHistory lists the newest plans that the node received, at most limit of them.
	PlanHistory func(ctx context.Context, limit uint64) (*PlanHistoryAnswer, error)
	// DNSSEC returns the signing state of the zone, and ChangeDNSSEC requests a change of it.
	DNSSEC       func(ctx context.Context) (*DNSSECAnswer, error)
	ChangeDNSSEC func(ctx context.Context, r DNSSECRequest, actor string) (*DNSSECAnswer, error)
	// RotateTickets creates a new key for redirect tickets.
	RotateTickets func(ctx context.Context, r TicketsRequest, actor string) (*TicketsAnswer, error)
	// Basis lists the sources of the configuration in force and their age.
	Basis func() []Basis
	// Ready returns nil when the node is ready. Without it a node is ready once it listens.
	Ready func() error
}
