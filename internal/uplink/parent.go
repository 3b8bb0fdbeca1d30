package uplink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/httpedge/clientip"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/netif"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// ParentConfig holds the settings of a Parent.
type ParentConfig struct {
	// Listen is the UDP address for children, "host:port"; port 0 selects a free one.
	Listen string
	// Certs is the identity of this instance.
	Certs *identity.Certs
	// ChildRole is the required role of a child's certificate.
	ChildRole identity.Role
	// CheckScope is a further rule for children, such as "of my region"; nil allows every child of the role. It is
	// called for each hello and by RecheckSessions, possibly concurrently. The child receives the text of its error.
	CheckScope func(identity.ID) error
	// OnSummary is called with each summary; s must be treated as immutable. Its path is that of the certificate.
	// Calls may be concurrent and slightly out of order: capacity.SummaryTable handles that. It must not block.
	OnSummary func(id identity.ID, s *capacity.Summary)
	// OnLost is called when a child's session ended and no other has replaced it. It is never called after a summary
	// of a newer session. May be nil.
	OnLost func(id identity.ID, p capacity.Path)
	// OnLowerBoot is called, before the session's first summary, when a session numbers its summaries below those of
	// the session before it. The earlier ones must be dropped, or they outrank all that follow. May be nil.
	OnLowerBoot func(p capacity.Path)
	// BuildDirective returns the directive for a child, or nil for none. It must not block. Nil sends none.
	BuildDirective func(p capacity.Path) *Directive
	// Network replaces the system's network where several nodes run in one process; nil: the system's.
	Network netif.HostNetwork
	// Log receives changes of session state and refusals; nil discards them.
	Log *slog.Logger
	// MaxChildren bounds the sessions; zero means capacity.MaxTableChildren.
	MaxChildren int

	socket net.PacketConn // for tests on a simulated network; the owner closes it
}

// Parent accepts the sessions of a tier's children. It is used once: NewParent, Start, Stop.
type Parent struct {
	cfg              ParentConfig
	log              *slog.Logger
	refusals         refusalLog
	handshakes       handshakeLimiter
	connectedLog     telemetry.LogThrottle
	lostLog          telemetry.LogThrottle
	unsentLog        telemetry.LogThrottle
	unsentDirectives atomic.Uint64             // directives that could not be encoded
	omittedParts     [numOmitted]atomic.Uint64 // parts left out of directives that were sent
	handshakeRate    handshakeRateMeter
	transport        *quic.Transport
	tls              *tls.Config
	listener         *quic.Listener
	boot             uint64
	cancel           context.CancelFunc
	started          atomic.Bool
	stopped          atomic.Bool
	workers          sync.WaitGroup
	openConns        atomic.Int64 // connections, greeted or not
	sessionCount     atomic.Int64 // len(sessions)

	mu          sync.Mutex
	sessions    map[capacity.Path]*parentEnd
	pastTraffic Traffic                  // of sessions that ended
	lastBoots   map[capacity.Path]uint64 // newest boot of each path, also after its session ended
}

// NewParent checks the configuration and binds the address, so that Addr is known before Start.
func NewParent(cfg ParentConfig) (*Parent, error) {
	if cfg.Certs == nil || cfg.OnSummary == nil {
		return nil, errors.New("uplink parent needs certificates and a handler of summaries")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxChildren <= 0 {
		cfg.MaxChildren = capacity.MaxTableChildren
	}
	socket := cfg.socket
	if socket == nil {
		var err error
		if socket, err = listenUDP(cfg.Network, cfg.Listen); err != nil {
			return nil, fmt.Errorf("%s cannot listen on UDP %s for uplinks: %w: free the port, or set another uplink listen address", cfg.Certs.ID(), cfg.Listen, err)
		}
	}
	p := &Parent{
		cfg: cfg, log: cfg.Log, boot: uint64(time.Now().UnixNano()),
		sessions: make(map[capacity.Path]*parentEnd), lastBoots: make(map[capacity.Path]uint64),
	}
	p.refusals.log = cfg.Log
	p.tls = cfg.Certs.ServerTLS(ALPN, p.checkRole)
	p.transport = &quic.Transport{
		Conn: socket, StatelessResetKey: deriveResetKey(p.tls), ConnContext: p.limitHandshakes, VerifySourceAddress: p.handshakeRate.isOverLimit,
	}
	return p, nil
}

// checkRole is the part of the rule for children that is applied inside the handshake.
func (p *Parent) checkRole(id identity.ID) error {
	if id.Role != p.cfg.ChildRole {
		return fmt.Errorf("it is a %s where a %s is expected", id.Role, p.cfg.ChildRole)
	}
	return nil
}

// checkScope is the rest of the rule for children. It is applied to the hello, where a refusal can carry its reason.
func (p *Parent) checkScope(id identity.ID) error {
	if p.cfg.CheckScope != nil {
		return p.cfg.CheckScope(id)
	}
	return nil
}

// RecheckSessions applies the rule for children again to every session, and ends those that it no longer allows. The
// owner calls it when the inputs of CheckScope have changed. It does not wait for the ends of the sessions, which
// OnLost reports.
func (p *Parent) RecheckSessions() {
	p.mu.Lock()
	sessions := slices.Collect(maps.Values(p.sessions))
	p.mu.Unlock()
	for _, s := range sessions {
		if err := p.checkScope(s.id); err != nil {
			p.rejectConn(s.conn, s.id, err)
		}
	}
}

// limitHandshakes limits the handshakes of addresses with many failures, and counts handshakes that failed because
// this node refused the peer's certificate.
func (p *Parent) limitHandshakes(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	from := hostWithoutPort(info.RemoteAddr)
	source := handshakeSource(info.RemoteAddr)
	if !p.handshakes.allowHandshake(source, time.Now()) {
		p.refusals.recordRefusal(from, reasonHandshakeLimit, errHandshakeLimit.Error())
		return nil, errHandshakeLimit
	}
	context.AfterFunc(ctx, func() {
		var t *quic.TransportError
		if errors.As(context.Cause(ctx), &t) && !t.Remote && t.ErrorCode.IsCryptoError() {
			p.handshakes.recordFailure(source, time.Now())
			p.refusals.recordRefusal(from, reasonCertificate, t.Error())
		}
	})
	return ctx, nil
}

// handshakeSource is the unit by which handshakes are bounded: an IPv4 address, or the /64 of an IPv6 one.
func handshakeSource(a net.Addr) string {
	host := hostWithoutPort(a)
	if ip, err := netip.ParseAddr(host); err == nil {
		return clientip.ClientLimitKey(ip).String()
	}
	return host
}

func hostWithoutPort(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}

// Addr is the address to which children connect.
func (p *Parent) Addr() net.Addr { return p.transport.Conn.LocalAddr() }

// Start accepts children until Stop; the end of ctx does not stop it.
func (p *Parent) Start(ctx context.Context) error {
	if !p.started.CompareAndSwap(false, true) || p.stopped.Load() {
		return ErrStopped
	}
	ln, err := p.transport.Listen(p.tls, newQUICConfig(-1))
	if err != nil {
		return fmt.Errorf("accepting uplinks: %w", err)
	}
	p.listener = ln
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.workers.Go(func() { p.acceptConns(ctx) })
	return nil
}

func (p *Parent) acceptConns(ctx context.Context) {
	for {
		conn, err := p.listener.Accept(ctx)
		if err != nil {
			return
		}
		if p.openConns.Add(1) > int64(p.cfg.MaxChildren)+maxUnverifiedHandshakes {
			p.openConns.Add(-1)
			conn.CloseWithError(codeFull, "too many connections")
			continue
		}
		p.workers.Go(func() {
			defer p.openConns.Add(-1)
			stop := context.AfterFunc(ctx, func() { conn.CloseWithError(codeShutdown, "stopping") })
			defer stop()
			p.serveConn(ctx, conn)
		})
	}
}

// Stop closes all sessions and waits for its goroutines until ctx ends. It calls OnLost for none of them: the parent
// is stopping, the children are not lost.
func (p *Parent) Stop(ctx context.Context) error {
	if !p.stopped.CompareAndSwap(false, true) {
		return nil
	}
	if p.cancel != nil {
		p.cancel()
	}
	err := waitContext(ctx, &p.workers)
	if p.listener != nil {
		p.listener.Close()
	}
	p.transport.Close()
	if p.cfg.socket == nil {
		p.transport.Conn.Close()
	}
	return err
}

// PushDirectives makes a new directive for every child. It never blocks; calls that come faster than a child reads
// directives are merged.
func (p *Parent) PushDirectives() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sessions {
		signalChan(s.directiveDue)
	}
}

// summaryGap is the gap between summaries that is requested from each child.
func (p *Parent) summaryGap() time.Duration { return gapForChildren(int(p.sessionCount.Load())) }

// RefusedCount counts peers that were refused or sent malformed bytes.
func (p *Parent) RefusedCount() uint64 { return p.refusals.countAll() }

// Traffic is the sum over all sessions, including those that ended.
func (p *Parent) Traffic() Traffic {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := p.pastTraffic
	for _, s := range p.sessions {
		if t := s.counters.readTraffic(s.conn, s.version); !s.trafficFolded {
			sum.addTraffic(&t)
		}
	}
	return sum
}

// ChildInfo is the state of one child's connection.
type ChildInfo struct {
	ID         identity.ID
	Path       capacity.Path
	Endpoint   string // from the Hello
	RemoteAddr string // the remote address of the connection
	Since      time.Time
	Traffic
	// Summaries counts the arrivals in this session; the time after it is that of the newest.
	Summaries     uint64
	LastSummaryAt time.Time
	// SentPosition is the position of the last directive sent, PositionInForce that of the one in force on the child;
	// zero: not reported.
	SentPosition, PositionInForce Position
}

// Children returns the sessions, by path.
func (p *Parent) Children() []ChildInfo {
	p.mu.Lock()
	out := make([]ChildInfo, 0, len(p.sessions))
	for _, s := range p.sessions {
		out = append(out, s.childInfo())
	}
	p.mu.Unlock()
	slices.SortFunc(out, func(a, b ChildInfo) int { return a.Path.Compare(b.Path) })
	return out
}

func (p *Parent) findSession(path capacity.Path) *parentEnd {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sessions[path]
}
