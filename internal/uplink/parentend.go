package uplink

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"google.golang.org/protobuf/proto"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/uplink/uplinkpb"
)

const (
	directiveInterval = 5 * time.Second
	minDirectiveGap   = 20 * time.Millisecond
)

// parentEnd is the parent's end of one connection.
type parentEnd struct {
	parent        *Parent
	conn          *quic.Conn
	id            identity.ID
	path          capacity.Path
	endpoint      string
	startedAt     time.Time
	directiveDue  chan struct{} // a new directive is due
	version       uint32        // agreed on
	counters      sessionCounters
	trafficFolded bool          // its traffic is in the parent's sums; guarded by the parent's mu
	summaryBoot   atomic.Uint64 // of the newest statement
	lastSummaryAt atomic.Int64  // nanoseconds since since
	heldSpecOrder atomic.Uint64 // order of the directive whose spec the child reports to hold
	directives    directiveWriter

	mu              sync.Mutex // of inbox, sentPosition, positionInForce and lag
	inbox           summaryInbox
	sentPosition    Position // of the last directive sent
	positionInForce Position // on the child, as reported; zero if it does not report it
	childLag        lagTimer
	ended           chan struct{} // closed once the session is over and OnLost, if due, has returned
}

func (s *parentEnd) readDatagrams() error {
	may := newMessageBucket(datagramRate, datagramBurst)
	for {
		b, err := s.conn.ReceiveDatagram(s.conn.Context())
		if err != nil {
			return err
		}
		if !may.takeToken(time.Now()) {
			if s.counters.skipped.Add(1); may.excess > maxExcessMessages {
				return errTooManyMessages
			}
			continue
		}
		if len(b) > 0 && b[0] == kindHeldSpec {
			if err := s.recordHeld(b[1:]); err != nil {
				return err
			}
		}
		if len(b) == 0 || b[0] != kindDelta {
			continue
		}
		s.mu.Lock()
		s.inbox.bootLimit = maxBoot(time.Now(), maxParentBootLead)
		statement, err := s.inbox.acceptDelta(b[1:])
		newest, lacks := s.inbox.newest, s.inbox.missingBase
		s.mu.Unlock()
		if err != nil {
			return err
		}
		if newest != nil || lacks {
			s.confirmSummary(newest, lacks)
		}
		if statement == nil {
			s.counters.skipped.Add(1)
			continue
		}
		s.counters.deltas.Add(1)
		s.deliverSummary(statement)
	}
}

// recordHeld records which spec need not be sent again. Any order is accepted: only that of the last sent spec has an
// effect.
func (s *parentEnd) recordHeld(b []byte) error {
	var h uplinkpb.Held
	if err := proto.Unmarshal(b, &h); err != nil {
		return wrapMalformed(err)
	}
	s.heldSpecOrder.Store(h.Order)
	if p := (Position{Generation: h.Generation, Index: h.Index}); p != (Position{}) {
		s.recordInForce(p, time.Now())
	}
	return nil
}

// recordInForce stores the position in force on the child, and logs when it differs for long from what was sent.
func (s *parentEnd) recordInForce(p Position, now time.Time) {
	s.mu.Lock()
	s.positionInForce = p
	sent := s.sentPosition
	warn := s.childLag.shouldWarn(p != sent, now)
	s.mu.Unlock()
	if warn {
		s.parent.log.Warn("a child does not follow this node's directives: "+explainChildLag(p, sent), "peer", s.id.String(),
			"generation", sent.Generation, "index", sent.Index, "generation_in_force", p.Generation, "index_in_force", p.Index)
	}
}

// explainChildLag returns why a child does not apply the directives, and what to do.
func explainChildLag(inForce, sent Position) string {
	switch {
	case inForce.Generation > sent.Generation:
		return "it follows a later generation of the cluster: if this node was left behind by a restore or a recovery, wipe its `dir` and add it again"
	case inForce.Compare(sent) > 0:
		return "it holds policy of a later log index: see `spillway members`; after a loss of all Raft logs restore an archive"
	}
	return "its log says why"
}

// confirmSummary confirms the newest received summary to the child. A lost confirmation is replaced by the next.
func (s *parentEnd) confirmSummary(newest *capacity.Summary, resync bool) {
	var boot, seq uint64
	if newest != nil {
		boot, seq = newest.Boot, newest.Seq
	}
	var buf [maxConfirmationBytes]byte
	_ = s.conn.SendDatagram(appendConfirmation(buf[:0], boot, seq, s.parent.summaryGap(), resync)) // which copies it
}

// readSnapshots reads one stream at a time: a child has at most one snapshot in flight.
func (s *parentEnd) readSnapshots() error {
	may := newMessageBucket(snapshotRate, snapshotBurst)
	for {
		st, err := s.conn.AcceptStream(s.conn.Context())
		if err != nil {
			return err
		}
		if !may.takeToken(time.Now()) {
			if s.counters.skipped.Add(1); may.excess > maxExcessMessages {
				return errTooManyMessages
			}
			st.CancelRead(0)
			st.CancelWrite(0)
			continue
		}
		if err := s.readSnapshot(st); isMalformed(err) {
			return err
		}
	}
}

func (s *parentEnd) readSnapshot(st *quic.Stream) error {
	defer st.CancelRead(0)
	kind, body, err := readMessage(st, capacity.MaxEncoded)
	if err != nil || kind != kindSnapshot {
		st.CancelWrite(0)
		return err
	}
	s.mu.Lock()
	s.inbox.bootLimit = maxBoot(time.Now(), maxParentBootLead)
	statement, err := s.inbox.acceptSnapshot(body)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if _, err := st.Write([]byte{snapshotConfirmed}); err != nil {
		return err
	}
	st.Close()
	s.counters.snapshots.Add(1) // deltas on it count, even if a delta brought the same content sooner
	s.deliverSummary(statement)
	return nil
}

func (s *parentEnd) deliverSummary(statement *capacity.Summary) {
	if statement == nil {
		return
	}
	if old := s.summaryBoot.Swap(statement.Boot); old != statement.Boot {
		if lower := s.parent.recordBoot(s.path, statement.Boot); lower && old == 0 && s.parent.cfg.OnLowerBoot != nil {
			s.parent.cfg.OnLowerBoot(s.path)
		}
	}
	s.lastSummaryAt.Store(int64(time.Since(s.startedAt)))
	s.parent.cfg.OnSummary(s.id, statement)
}

// sendDirectives sends the newest directive at every PushDirectives, and periodically. A slow link delays the next
// one, which is only made when it can be sent, so old ones never queue up.
func (s *parentEnd) sendDirectives() error {
	if s.parent.cfg.BuildDirective == nil {
		return nil
	}
	tick := time.NewTicker(directiveInterval)
	defer tick.Stop()
	for order := uint64(1); ; order++ {
		if d := s.parent.cfg.BuildDirective(s.path); d != nil {
			s.sendDirective(order, d)
		}
		if !sleepContext(s.conn.Context(), minDirectiveGap) {
			return nil
		}
		select {
		case <-s.conn.Context().Done():
			return nil
		case <-s.directiveDue:
		case <-tick.C:
		}
	}
}

func (s *parentEnd) sendDirective(order uint64, d *Directive) {
	s.mu.Lock()
	s.sentPosition = d.Position()
	s.mu.Unlock()
	b, left, err := s.directives.encodeForChild(order, s.heldSpecOrder.Load(), d)
	s.parent.recordOmissions(s.id.String(), left, err)
	if err != nil {
		return
	}
	st, err := s.conn.OpenUniStreamSync(s.conn.Context())
	if err != nil {
		return
	}
	st.SetWriteDeadline(time.Now().Add(streamTimeout))
	if _, err := st.Write(append([]byte{kindDirective}, b...)); err != nil {
		st.CancelWrite(0)
		return
	}
	st.Close()
	s.counters.directives.Add(1)
}

// recordOmissions counts a directive that was not sent, or not completely, and logs it at most once a minute.
func (p *Parent) recordOmissions(child string, left omittedCounts, err error) {
	if err == nil && left == (omittedCounts{}) {
		return
	}
	for i, n := range left {
		p.omittedParts[i].Add(uint64(n))
	}
	now := time.Now()
	if err != nil {
		p.unsentDirectives.Add(1)
		if n, ok := p.unsentLog.AllowLine("directive cannot be sent", child, now); ok {
			p.log.Warn("directive cannot be sent: the child keeps the one it has, so no new spec, drain or key reaches it; make the spec smaller or end drains",
				"child", child, telemetry.ErrorAttr(err), telemetry.KeySuppressed, n)
		}
		return
	}
	if n, ok := p.unsentLog.AllowLine("directive truncated", "", now); ok {
		p.log.Warn("directive truncated: the policy was sent, some peer data was omitted", "child", child,
			"prefixes", left[omitPrefixes] > 0, "peers", left[omitPeers], "reasons", left[omitDrainReasons], "limit_bytes", maxDirectiveBytes,
			telemetry.KeySuppressed, n)
	}
}

func (s *parentEnd) childInfo() ChildInfo {
	i := ChildInfo{
		ID: s.id, Path: s.path, Endpoint: s.endpoint, RemoteAddr: s.conn.RemoteAddr().String(), Since: s.startedAt,
		Traffic: s.counters.readTraffic(s.conn, s.version),
	}
	s.mu.Lock()
	i.SentPosition, i.PositionInForce = s.sentPosition, s.positionInForce
	s.mu.Unlock()
	i.Summaries = i.Deltas + i.Snapshots
	if i.Summaries > 0 {
		i.LastSummaryAt = s.startedAt.Add(time.Duration(s.lastSummaryAt.Load()))
	}
	return i
}
