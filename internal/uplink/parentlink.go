package uplink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/spillway-lb/spillway/internal/backoff"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/uplink/uplinkpb"
)

const (
	maxSessionAge   = time.Hour // of a session, so that rotation and revocation of certificates take effect
	stableAfter     = 10 * time.Second
	renewRetryDelay = time.Minute
)

// ParentSession is the state of a child's connection to one parent.
type ParentSession struct {
	// Address as configured.
	Address string
	// Parent is the peer at that address; zero before the first session.
	Parent    identity.ID
	Connected bool
	// ConfirmedAt is when the parent last confirmed a summary in the present session; before that, the start of the
	// session.
	ConfirmedAt time.Time
	// Since is when the session began or was lost.
	Since time.Time
	// Traffic of the session; zero while not connected.
	Traffic
	// RequestedGap is the gap between summaries that the parent requested, 0 if it requested none.
	RequestedGap time.Duration
	// Err is why there is no session.
	Err error
}

// parentLink keeps one session to one parent address.
type parentLink struct {
	child      *Child
	addr       string
	tls        *tls.Config
	rng        *rand.Rand
	waits      backoff.Decorrelated // so that children that lost one parent together do not reconnect together
	currentEnd atomic.Pointer[childEnd]

	mu          sync.Mutex
	status      ParentSession
	pastTraffic Traffic // of sessions that ended
}

func newParentLink(c *Child, addr string) *parentLink {
	l := &parentLink{child: c, addr: addr, rng: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), waits: backoff.Decorrelated{First: minBackoff, Longest: maxBackoff}}
	l.status = ParentSession{Address: addr, Since: time.Now(), Err: errors.New("not connected yet")}
	l.tls = c.cfg.Certs.ClientTLS(ALPN, l.checkParentID)
	return l
}

// checkParentID is the rule for parents: the right role, and gateways only of the child's own region.
func (l *parentLink) checkParentID(id identity.ID) error {
	if id.Role != l.child.cfg.ParentRole {
		return fmt.Errorf("it is a %s where a %s is expected", id.Role, l.child.cfg.ParentRole)
	}
	if id.Role == identity.RoleGateway && id.Region != l.child.cfg.Path.Region {
		return fmt.Errorf("it serves region %s, not %s", id.Region, l.child.cfg.Path.Region)
	}
	return nil
}

func (l *parentLink) maintainSession(ctx context.Context) {
	for ctx.Err() == nil {
		begun := time.Now()
		s, err := l.dialParent(ctx)
		if err == nil {
			l.markUp(s)
			err = l.holdSession(ctx, s)
		}
		if ctx.Err() != nil {
			return
		}
		l.markDown(err)
		if time.Since(begun) > stableAfter {
			l.waits.Reset()
		}
		if !sleepContext(ctx, l.retryDelay(err)) {
			return
		}
	}
}

// retryDelay is the wait before the next try. It is long after a replacement or a refusal, which do not pass quickly.
func (l *parentLink) retryDelay(err error) time.Duration {
	d := l.waits.NextDelay(l.rng)
	var app *quic.ApplicationError
	if errors.As(err, &app) && app.Remote && app.ErrorCode != codeShutdown && app.ErrorCode != codeSilent {
		return max(d, maxBackoff/2+time.Duration(l.rng.Int64N(int64(maxBackoff/2))))
	}
	return d
}

// holdSession waits until the session ends, and replaces it with a new one before it is too old.
func (l *parentLink) holdSession(ctx context.Context, s *childEnd) error {
	age := time.NewTimer(l.renewAfter())
	defer age.Stop()
	for {
		select {
		case <-ctx.Done():
			s.closeAndWait(codeShutdown, "stopping")
			l.foldTraffic(s)
			return ctx.Err()
		case <-s.done:
			l.foldTraffic(s)
			return s.closeCause()
		case <-age.C:
		}
		next, err := l.dialParent(ctx)
		if err != nil {
			age.Reset(renewRetryDelay)
			continue
		}
		l.markUp(next)
		s.closeAndWait(codeShutdown, "renewed")
		l.foldTraffic(s)
		s = next
		age.Reset(l.renewAfter())
	}
}

// renewAfter is when a new session replaces one that begins now: within maxSessionAge, and well before this node's
// certificate expires, because the parent ends the session then.
func (l *parentLink) renewAfter() time.Duration {
	left := time.Until(l.child.cfg.Certs.Expires())
	return min(maxSessionAge-time.Duration(l.rng.Int64N(int64(maxSessionAge/10))), max(left-left/10, renewRetryDelay))
}

// dialParent opens a session and starts it.
func (l *parentLink) dialParent(ctx context.Context) (*childEnd, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*handshakeTimeout)
	defer cancel()
	addr, err := resolveParent(ctx, l.addr)
	if err != nil {
		return nil, err
	}
	conn, err := l.child.transport.Dial(ctx, addr, l.tls, newQUICConfig(maxStreams/2))
	if err != nil {
		return nil, err
	}
	welcome, err := l.sendHello(ctx, conn)
	var agreed uint32
	if err == nil {
		agreed, err = agreeVersion(welcome.Version, minProtocolVersion)
	}
	var id identity.ID
	if err == nil {
		id, err = identity.PeerID(conn.ConnectionState().TLS)
	}
	if err != nil {
		if cause := context.Cause(conn.Context()); cause != nil {
			err = cause // the parent's close reason is more useful than the end of the stream
		}
		conn.CloseWithError(closeCode(err), "no welcome")
		return nil, err
	}
	l.child.raiseBoot(id.String(), welcome.HeldBoot)
	return startChildEnd(l.child, conn, id, agreed), nil
}

func (l *parentLink) sendHello(ctx context.Context, conn *quic.Conn) (*uplinkpb.Welcome, error) {
	control, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	control.SetDeadline(time.Now().Add(handshakeTimeout))
	if err := writeFrame(control, newHello(l.child.cfg.Path, l.child.Boot(), l.child.cfg.Endpoint)); err != nil {
		return nil, err
	}
	var w uplinkpb.Welcome
	if err := readFrame(control, &w); err != nil {
		return nil, err
	}
	return &w, nil
}

func closeCode(err error) quic.ApplicationErrorCode {
	switch {
	case isMalformed(err):
		return codeMalformed
	case errors.Is(err, errVersion):
		return codeVersion
	}
	return codeShutdown
}

func (l *parentLink) markUp(s *childEnd) {
	l.currentEnd.Store(s)
	signalChan(s.summaryReady)
	l.mu.Lock()
	defer l.mu.Unlock()
	if left, back := l.child.logThrottle.ResolveSubject(l.addr); back || l.status.Parent == (identity.ID{}) {
		l.child.log.Info("uplink connected", "parent", s.parent.String(), "address", l.addr, telemetry.KeySuppressed, left)
	}
	l.status = ParentSession{Address: l.addr, Parent: s.parent, Connected: true, Since: time.Now()}
}

// foldTraffic adds the traffic of an ended session to the sums.
func (l *parentLink) foldTraffic(s *childEnd) {
	t := s.counters.readTraffic(s.conn, s.version)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pastTraffic.addTraffic(&t)
	l.currentEnd.CompareAndSwap(s, nil)
}

// totalTraffic is the traffic of the link so far.
func (l *parentLink) totalTraffic() Traffic {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := l.pastTraffic
	if s := l.currentEnd.Load(); s != nil {
		t := s.counters.readTraffic(s.conn, s.version)
		sum.addTraffic(&t)
	}
	return sum
}

// markDown records the loss, and logs it once until the next success, and at most once a minute if sessions come and
// go.
func (l *parentLink) markDown(err error) {
	l.currentEnd.Store(nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	var app *quic.ApplicationError
	if errors.As(err, &app) && app.Remote && app.ErrorCode != codeShutdown && app.ErrorCode != codeSilent {
		l.child.warnThrottled("uplink refused by the parent, retrying", l.addr, err)
	} else if l.status.Connected || l.status.Parent == (identity.ID{}) && !l.waits.Failing() {
		l.child.warnThrottled("uplink down, retrying", l.addr, err)
	}
	if l.status.Connected {
		l.status.Since = time.Now()
	}
	l.status.Connected, l.status.Err = false, err
}

func (l *parentLink) sessionStatus() ParentSession {
	l.mu.Lock()
	out := l.status
	l.mu.Unlock()
	if s := l.currentEnd.Load(); s != nil && out.Connected {
		out.Traffic, out.RequestedGap = s.counters.readTraffic(s.conn, s.version), time.Duration(s.requestedGap.Load())
		out.ConfirmedAt = s.startedAt.Add(time.Duration(s.confirmedAt.Load()))
	}
	return out
}
