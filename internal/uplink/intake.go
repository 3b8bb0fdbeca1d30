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
	directiveEvery = 5 * time.Second
	directiveGap   = 20 * time.Millisecond
)

// intake is the parent's end of one connection.
type intake struct {
	parent   *Parent
	conn     *quic.Conn
	id       identity.ID
	path     capacity.Path
	endpoint string
	since    time.Time
	push     chan struct{} // a new directive is due
	version  uint32        // agreed on
	sums     sums
	buried   bool          // its traffic is among the parent's past; guarded by the parent's mu
	boot     atomic.Uint64 // of the newest statement
	last     atomic.Int64  // nanoseconds since since
	held     atomic.Uint64 // order of the directive whose spec the child said it holds
	brief    briefing

	mu      sync.Mutex // of in, sent, inForce and behind
	in      inbox
	sent    Position // of the last directive sent
	inForce Position // at the child, as it states; zero when it does not
	behind  lag
	end     chan struct{} // closed once the session is over and OnLost, if due, has returned
}

func (s *intake) takeDatagrams() error {
	may := newAllowance(datagramRate, datagramBurst)
	for {
		b, err := s.conn.ReceiveDatagram(s.conn.Context())
		if err != nil {
			return err
		}
		if !may.take(time.Now()) {
			if s.sums.passed.Add(1); may.over > floodAfter {
				return errFlood
			}
			continue
		}
		if len(b) > 0 && b[0] == kindHeld {
			if err := s.takeHeld(b[1:]); err != nil {
				return err
			}
		}
		if len(b) == 0 || b[0] != kindDelta {
			continue
		}
		s.mu.Lock()
		s.in.most = maxBoot(time.Now(), parentBootAhead)
		statement, err := s.in.delta(b[1:])
		newest, lacks := s.in.newest, s.in.lacks
		s.mu.Unlock()
		if err != nil {
			return err
		}
		if newest != nil || lacks {
			s.confirm(newest, lacks)
		}
		if statement == nil {
			s.sums.passed.Add(1)
			continue
		}
		s.sums.deltas.Add(1)
		s.deliver(statement)
	}
}

// takeHeld notes which spec need not be sent again. Any order may stand there: only that of the last spec sent counts.
func (s *intake) takeHeld(b []byte) error {
	var h uplinkpb.Held
	if err := proto.Unmarshal(b, &h); err != nil {
		return rubbish(err)
	}
	s.held.Store(h.Order)
	if p := (Position{Generation: h.Generation, Index: h.Index}); p != (Position{}) {
		s.noteInForce(p, time.Now())
	}
	return nil
}

// noteInForce takes the position that is in force at the child, and logs when that is not for long what it was sent.
func (s *intake) noteInForce(p Position, now time.Time) {
	s.mu.Lock()
	s.inForce = p
	sent := s.sent
	warn := s.behind.warn(p != sent, now)
	s.mu.Unlock()
	if warn {
		s.parent.log.Warn("a child does not follow this node's directives: "+hintOfChild(p, sent), "peer", s.id.String(),
			"generation", sent.Generation, "index", sent.Index, "generation_in_force", p.Generation, "index_in_force", p.Index)
	}
}

// hintOfChild says why a child does not follow, and what to do.
func hintOfChild(inForce, sent Position) string {
	switch {
	case inForce.Generation > sent.Generation:
		return "it follows a later generation of the cluster: if this node was left behind by a restore or a recovery, wipe its `dir` and add it again"
	case inForce.Compare(sent) > 0:
		return "it holds policy of a later log index: see `spillway members`; after a loss of all Raft logs restore an archive"
	}
	return "its log says why"
}

// confirm tells the child how far it is heard. A lost one is made good by the next.
func (s *intake) confirm(newest *capacity.Summary, resync bool) {
	h := &uplinkpb.Heard{GapMillis: uint32(s.parent.pace().Milliseconds()), Resync: resync}
	if newest != nil {
		h.Boot, h.Seq = newest.Boot, newest.Seq
	}
	b, err := proto.Marshal(h)
	if err == nil {
		_ = s.conn.SendDatagram(append([]byte{kindHeard}, b...))
	}
}

// takeSnapshots reads one stream at a time: a child has at most one snapshot under way.
func (s *intake) takeSnapshots() error {
	may := newAllowance(snapshotRate, snapshotBurst)
	for {
		st, err := s.conn.AcceptStream(s.conn.Context())
		if err != nil {
			return err
		}
		if !may.take(time.Now()) {
			if s.sums.passed.Add(1); may.over > floodAfter {
				return errFlood
			}
			st.CancelRead(0)
			st.CancelWrite(0)
			continue
		}
		if err := s.takeSnapshot(st); isRubbish(err) {
			return err
		}
	}
}

func (s *intake) takeSnapshot(st *quic.Stream) error {
	defer st.CancelRead(0)
	kind, body, err := readMessage(st, capacity.MaxEncoded)
	if err != nil || kind != kindSnapshot {
		st.CancelWrite(0)
		return err
	}
	s.mu.Lock()
	s.in.most = maxBoot(time.Now(), parentBootAhead)
	statement, err := s.in.snapshot(body)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if _, err := st.Write([]byte{confirmed}); err != nil {
		return err
	}
	st.Close()
	s.sums.snapshots.Add(1) // what builds on it counts, also where a delta brought the same sooner
	s.deliver(statement)
	return nil
}

func (s *intake) deliver(statement *capacity.Summary) {
	if statement == nil {
		return
	}
	if old := s.boot.Swap(statement.Boot); old != statement.Boot {
		if lower := s.parent.remember(s.path, statement.Boot); lower && old == 0 && s.parent.cfg.OnLowerBoot != nil {
			s.parent.cfg.OnLowerBoot(s.path)
		}
	}
	s.last.Store(int64(time.Since(s.since)))
	s.parent.cfg.OnSummary(s.id, statement)
}

// pushDirectives sends the newest directive at every Wake and now and then besides. A slow link delays the next one,
// which is made only when it can leave: so there is never a queue of old ones.
func (s *intake) pushDirectives() error {
	if s.parent.cfg.Directive == nil {
		return nil
	}
	tick := time.NewTicker(directiveEvery)
	defer tick.Stop()
	for order := uint64(1); ; order++ {
		if d := s.parent.cfg.Directive(s.path); d != nil {
			s.sendDirective(order, d)
		}
		if !pause(s.conn.Context(), directiveGap) {
			return nil
		}
		select {
		case <-s.conn.Context().Done():
			return nil
		case <-s.push:
		case <-tick.C:
		}
	}
}

func (s *intake) sendDirective(order uint64, d *Directive) {
	s.mu.Lock()
	s.sent = d.Position()
	s.mu.Unlock()
	b, left, err := s.brief.encode(order, s.held.Load(), d)
	s.parent.countDirective(s.id.String(), left, err)
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
	s.sums.directives.Add(1)
}

// countDirective counts a directive that cannot be sent, or not whole, and warns of it at most once a minute.
func (p *Parent) countDirective(child string, left omitted, err error) {
	if err == nil && left == (omitted{}) {
		return
	}
	for i, n := range left {
		p.omitted[i].Add(uint64(n))
	}
	now := time.Now()
	if err != nil {
		p.unsent.Add(1)
		if n, ok := p.unsentLog.Pass("directive cannot be sent", child, now); ok {
			p.log.Warn("directive cannot be sent: the child keeps the one it has, so no new spec, drain or key reaches it; make the spec smaller or end drains",
				"child", child, telemetry.Err(err), telemetry.KeyLeftOut, n)
		}
		return
	}
	if n, ok := p.unsentLog.Pass("directive is not whole", "", now); ok {
		p.log.Warn("directive is not whole: the policy was sent, parts of the peers were left out", "child", child,
			"prefixes", left[omitPrefixes] > 0, "peers", left[omitPeers], "reasons", left[omitReasons], "limit_bytes", maxDirective,
			telemetry.KeyLeftOut, n)
	}
}

func (s *intake) info() ChildInfo {
	i := ChildInfo{
		ID: s.id, Path: s.path, Endpoint: s.endpoint, Remote: s.conn.RemoteAddr().String(), Since: s.since,
		Traffic: s.sums.traffic(s.conn, s.version),
	}
	s.mu.Lock()
	i.Sent, i.InForce = s.sent, s.inForce
	s.mu.Unlock()
	i.Statements = i.Deltas + i.Snapshots
	if i.Statements > 0 {
		i.Last = s.since.Add(time.Duration(s.last.Load()))
	}
	return i
}
