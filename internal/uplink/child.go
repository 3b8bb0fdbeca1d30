package uplink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/netif"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

const (
	defaultSummaryInterval = 250 * time.Millisecond
	minSummaryGap          = 10 * time.Millisecond // the least time between two summaries, however often SummarizeNow is called
	maxParents             = 256
)

// ChildConfig holds the settings of a Child.
type ChildConfig struct {
	// Certs is the identity of this instance; its role must be gateway or local.
	Certs *identity.Certs
	// Parents are the addresses of all instances of the parent tier, "host:port". The child keeps a session to each.
	Parents []string
	// ParentRole is the required role of a parent's certificate. Gateways must also be of this child's region.
	ParentRole identity.Role
	// Path is the subtree that this child reports. Zero means the path in the certificate; any other path is refused.
	Path capacity.Path
	// Endpoint is where this instance accepts forwarded requests, "host:port".
	Endpoint string
	// Interval is the time between summaries while nothing changes; zero means 250 ms. While something changes, it is
	// 100 ms if that is shorter.
	Interval time.Duration
	// BuildSummary makes a summary. Path, Boot, Seq and Endpoint are filled in afterwards. The result must not change
	// later. It is called from one goroutine and must not block.
	BuildSummary func(now time.Time) capacity.Summary
	// OnDirective is called with each directive, from one goroutine per parent, in the order of that parent's
	// directives; d must be treated as immutable. Nil ignores directives.
	OnDirective func(parent identity.ID, d *Directive)
	// PositionInForce returns the position of the directive in force, which is reported to each parent after its
	// directives. Nil: it is not reported.
	PositionInForce func() Position
	// OnQuery answers a parent's query within ctx, with at most MaxQueryBytes bytes. It may be called concurrently.
	// Nil refuses all queries.
	OnQuery func(ctx context.Context, kind string, payload []byte) ([]byte, error)
	// Network replaces the system's network where several nodes run in one process; nil: the system's.
	Network netif.HostNetwork
	// Log receives changes of session state; nil discards them.
	Log *slog.Logger

	socket net.PacketConn // for tests on a simulated network; the owner closes it
}

// Child keeps a session to every parent and sends each the newest summary. It is used once: NewChild, Start, Stop.
type Child struct {
	cfg           ChildConfig
	log           *slog.Logger
	boot          atomic.Uint64
	latestSummary atomic.Pointer[pendingSummary]
	logThrottle   telemetry.LogThrottle
	positions     lockedPositionJudge
	summarizeNow  chan struct{}
	parentLinks   []*parentLink
	transport     *quic.Transport
	cancel        context.CancelFunc
	started       atomic.Bool
	stopped       atomic.Bool
	workers       sync.WaitGroup
}

// NewChild checks the configuration and opens a UDP socket. Stop closes it, also when Start was never called.
func NewChild(cfg ChildConfig) (*Child, error) {
	switch {
	case cfg.Certs == nil || cfg.BuildSummary == nil:
		return nil, errors.New("uplink child needs certificates and a summary")
	case len(cfg.Parents) > maxParents:
		return nil, fmt.Errorf("%d uplink parents: at most %d", len(cfg.Parents), maxParents)
	}
	path, err := PathOf(cfg.Certs.ID())
	if err != nil {
		return nil, err
	}
	if cfg.Path == (capacity.Path{}) {
		cfg.Path = path
	}
	if cfg.Path != path {
		return nil, fmt.Errorf("this node is configured as %q but its certificate names %q: issue a certificate for it, or correct the configuration", cfg.Path, path)
	}
	if cfg.Interval <= 0 {
		cfg.Interval = defaultSummaryInterval
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	socket := cfg.socket
	if socket == nil {
		if socket, err = listenUDP(cfg.Network, ":0"); err != nil {
			return nil, fmt.Errorf("opening a socket for uplinks: %w", err)
		}
	}
	c := &Child{cfg: cfg, log: cfg.Log, summarizeNow: make(chan struct{}, 1), transport: &quic.Transport{Conn: socket}}
	c.boot.Store(uint64(time.Now().UnixNano()))
	for _, addr := range cfg.Parents {
		c.parentLinks = append(c.parentLinks, newParentLink(c, addr))
	}
	return c, nil
}

// Start begins connecting and returns at once: a child works while its parents are unreachable. It runs until Stop;
// the end of ctx does not stop it.
func (c *Child) Start(ctx context.Context) error {
	if !c.started.CompareAndSwap(false, true) || c.stopped.Load() {
		return ErrStopped
	}
	ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c.makeSummary(false)
	c.workers.Go(func() { c.produceSummaries(ctx) })
	for _, l := range c.parentLinks {
		c.workers.Go(func() { l.maintainSession(ctx) })
	}
	return nil
}

// Stop closes all sessions cleanly, so that parents notice at once, and waits for its goroutines until ctx ends.
func (c *Child) Stop(ctx context.Context) error {
	if !c.stopped.CompareAndSwap(false, true) {
		return nil
	}
	if c.cancel != nil {
		c.cancel()
	}
	err := waitContext(ctx, &c.workers)
	c.transport.Close()
	if c.cfg.socket == nil {
		c.transport.Conn.Close()
	}
	return err
}

// Boot identifies this run of the instance in its summaries. It is raised when a parent holds a greater one.
func (c *Child) Boot() uint64 { return c.boot.Load() }

// SummarizeNow makes a summary now instead of at the next interval. It never blocks.
func (c *Child) SummarizeNow() { signalChan(c.summarizeNow) }

// Sessions returns the state of the connection to each parent, in the order of Parents.
func (c *Child) Sessions() []ParentSession {
	out := make([]ParentSession, len(c.parentLinks))
	for i, l := range c.parentLinks {
		out[i] = l.sessionStatus()
	}
	return out
}

// Traffic is the sum over all sessions, including those that ended.
func (c *Child) Traffic() (sum Traffic) {
	for _, l := range c.parentLinks {
		t := l.totalTraffic()
		sum.addTraffic(&t)
	}
	return sum
}

// produceSummaries makes summaries and signals the sessions; each session sends the newest when it can.
func (c *Child) produceSummaries(ctx context.Context) {
	moved := time.Now()
	due := time.NewTimer(c.nextInterval(moved, moved))
	defer due.Stop()
	for last := time.Now(); ; last = time.Now() {
		woken := false
		select {
		case <-ctx.Done():
			return
		case <-due.C:
		case <-c.summarizeNow:
			woken = true
			if early := minSummaryGap - time.Since(last); early > 0 && !sleepContext(ctx, early) {
				return
			}
		}
		now := time.Now()
		if c.makeSummary(woken) {
			moved = now
		}
		if !woken { // frequent SummarizeNow calls do not change the interval
			due.Reset(c.nextInterval(now, moved))
		}
	}
}

// nextInterval is the time to the next summary: while something changes, the shortest gap that any parent requests.
func (c *Child) nextInterval(now, moved time.Time) time.Duration {
	gap, requested := maxSummaryGap, false
	for _, l := range c.parentLinks {
		if cur := l.currentEnd.Load(); cur != nil {
			gap, requested = min(gap, time.Duration(cur.requestedGap.Load())), true
		}
	}
	if !requested || now.Sub(moved) >= activeFor {
		return c.cfg.Interval
	}
	return max(min(activeInterval, c.cfg.Interval), gap)
}

// makeSummary makes the next summary, and reports whether its content is new. Only Start and then produceSummaries
// call it.
func (c *Child) makeSummary(urgent bool) (moved bool) {
	var seq uint64
	old := c.latestSummary.Load()
	s := c.cfg.BuildSummary(time.Now())
	if old != nil {
		seq, s = old.Seq, capacity.SuppressSmallChanges(old.Summary, &s)
	}
	s.Path, s.Endpoint, s.Boot, s.Seq = c.cfg.Path, c.cfg.Endpoint, c.boot.Load(), seq+1
	s = capacity.FitToLimits(s)
	next := newPendingSummary(old, &s)
	next.isUrgent = urgent
	c.latestSummary.Store(next)
	for _, l := range c.parentLinks {
		if cur := l.currentEnd.Load(); cur != nil {
			signalChan(cur.summaryReady)
		}
	}
	return next.firstEqualSeq == next.Seq
}

// raiseBoot raises Boot above a parent's value of an earlier run. A number far ahead of the clock is ignored: the
// parent accepts a lower one in a new session (see parentEnd.deliverSummary).
func (c *Child) raiseBoot(parent string, held uint64) {
	if limit := maxBoot(time.Now(), maxChildBootLead); held > limit {
		c.warnThrottled("a parent remembers a boot number far ahead of this node's clock, it is ignored: check the clocks of both nodes", parent,
			fmt.Errorf("boot %d, at most %d", held, limit))
		return
	}
	for {
		own := c.boot.Load()
		if held <= own {
			return
		}
		if c.boot.CompareAndSwap(own, held+1) {
			c.warnThrottled("a parent remembers a greater boot", parent, errDuplicateInstance)
			c.SummarizeNow()
			return
		}
	}
}

// warnThrottled logs a problem with a parent, at a limited rate while it lasts.
func (c *Child) warnThrottled(msg, parent string, err error) {
	if left, ok := c.logThrottle.AllowLine(msg, parent, time.Now()); ok {
		c.log.Warn(msg, "parent", parent, telemetry.ErrorAttr(err), telemetry.KeySuppressed, left)
	}
}

func signalChan(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// sleepContext waits for d and returns false when ctx ended first.
func sleepContext(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// waitContext waits for the group, at most until ctx ends.
func waitContext(ctx context.Context, wg *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stopping uplink: %w", ctx.Err())
	}
}

const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 5 * time.Second
)
