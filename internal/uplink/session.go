package uplink

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"google.golang.org/protobuf/proto"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/uplink/uplinkpb"
)

const (
	closeSilentAfter = 6 * time.Second       // without a confirmation of our summaries, though QUIC may be alive
	streamTimeout    = time.Minute           // for the largest directive over the slowest supported link
	timerGranularity = 20 * time.Millisecond // of the wait for a confirmation: a parent's scheduling, and timers
)

// childEnd is the child's end of one connection.
type childEnd struct {
	child        *Child
	conn         *quic.Conn
	parent       identity.ID
	summaryReady chan struct{} // a summary was made, or the parent confirmed one
	version      uint32        // agreed on
	confirmedSeq atomic.Uint64
	requestedGap atomic.Int64 // between summaries, requested by the parent
	resync       atomic.Bool  // the parent requested a snapshot
	counters     sessionCounters
	confirmedAt  atomic.Int64 // nanoseconds since begun
	startedAt    time.Time
	snapshotDone chan *capacity.Summary // outcome of the snapshot in flight
	directives   directiveReader
	workers      sync.WaitGroup
	done         chan struct{}
}

func startChildEnd(c *Child, conn *quic.Conn, parent identity.ID, version uint32) *childEnd {
	s := &childEnd{
		child: c, conn: conn, parent: parent, version: version, startedAt: time.Now(),
		summaryReady: make(chan struct{}, 1), snapshotDone: make(chan *capacity.Summary, 1), done: make(chan struct{}),
	}
	for _, loop := range []func(){s.sendSummaries, s.readConfirmations, s.readDirectives, s.acceptQueries} {
		s.workers.Go(loop)
	}
	stop := closeAtCertExpiry(conn, c.log)
	go func() {
		s.workers.Wait()
		stop()
		close(s.done)
	}()
	return s
}

// closeAndWait ends the connection and waits for the session's goroutines.
func (s *childEnd) closeAndWait(code quic.ApplicationErrorCode, why string) {
	s.conn.CloseWithError(code, why)
	<-s.done
}

func (s *childEnd) closeCause() error { return context.Cause(s.conn.Context()) }

// closeConn ends the connection from within one of its own goroutines.
func (s *childEnd) closeConn(code quic.ApplicationErrorCode, why string) {
	s.conn.CloseWithError(code, why)
}

// sendSummaries is the one goroutine that owns the outbox. Summaries come at every interval, so they also drive its
// timeouts.
func (s *childEnd) sendSummaries() {
	out := summaryOutbox{usePatches: s.version >= patchProtocolVersion}
	giveUp := func() {} // the snapshot in flight
	ended := s.conn.Context().Done()
	doubt := time.NewTimer(time.Hour) // the newest datagram is not confirmed in time: it may be lost
	defer doubt.Stop()
	for {
		select {
		case <-ended:
			return
		case landed := <-s.snapshotDone:
			out.finishSnapshot(landed, time.Now())
		case <-s.summaryReady:
		case <-doubt.C:
			if out.confirmUpTo(s.confirmedSeq.Load()); out.hasUnconfirmed() {
				s.child.SummarizeNow() // for another summary, which will not be delayed
			}
		}
		now := time.Now()
		out.confirmUpTo(s.confirmedSeq.Load())
		// A summary with a boot number that the parent's welcome has raised since is not sent: the parent would accept the
		// lower number as a restart and reset what it knows. The next summary follows at once (see raiseBoot).
		if latest := s.child.latestSummary.Load(); latest != nil && latest.Boot == s.child.Boot() {
			out.setSummary(latest)
		}
		out.probeTimeout, out.requestedGap = s.probeTimeout(), time.Duration(s.requestedGap.Load())
		out.resync = out.resync || s.resync.Swap(false)
		if b := out.nextDatagram(now); b != nil {
			s.sendDatagram(&out, b)
			doubt.Reset(out.retryWait())
		}
		if !out.hasUnconfirmed() {
			doubt.Stop()
		}
		if snap := out.nextSnapshot(now); snap != nil {
			s.counters.snapshots.Add(1)
			ctx, cancel := context.WithCancel(s.conn.Context())
			s.workers.Go(func() {
				defer cancel()
				s.snapshotDone <- s.sendSnapshot(ctx, snap)
			})
			giveUp = cancel
		}
		if out.shouldAbandonSnapshot(now, s.silentFor(now)) {
			giveUp()
		}
		if s.silentFor(now) > closeSilentAfter {
			s.closeConn(codeSilent, "nothing heard")
			return
		}
	}
}

// silentFor is the time since the parent's last message.
func (s *childEnd) silentFor(now time.Time) time.Duration {
	return now.Sub(s.startedAt) - time.Duration(s.confirmedAt.Load())
}

// probeTimeout is the probe timeout of RFC 9002, section 6.2.1. The parent confirms at once, so nothing is added for
// its delay.
func (s *childEnd) probeTimeout() time.Duration {
	stats := s.conn.ConnectionStats()
	return stats.SmoothedRTT + max(4*stats.MeanDeviation, timerGranularity)
}

// sendDatagram cannot block: the window is far smaller than QUIC's queue.
func (s *childEnd) sendDatagram(out *summaryOutbox, b []byte) {
	var tooLarge *quic.DatagramTooLargeError
	if err := s.conn.SendDatagram(b); errors.As(err, &tooLarge) {
		out.lastOverflowed = true
	}
	s.counters.deltas.Add(1)
}

// sendSnapshot returns nil unless the parent confirmed. The send loop starts one at a time, and snapshotDone has room
// for it.
func (s *childEnd) sendSnapshot(ctx context.Context, snap *capacity.Summary) *capacity.Summary {
	b, err := capacity.EncodeSummary(snap)
	if err != nil {
		s.child.warnThrottled("statement cannot be encoded", s.parent.String(), err)
		return nil
	}
	st, err := s.conn.OpenStreamSync(ctx)
	if err != nil {
		return nil
	}
	stop := context.AfterFunc(ctx, func() {
		st.CancelRead(0)
		st.CancelWrite(0)
	})
	defer stop()
	if _, err := st.Write(append([]byte{kindSnapshot}, b...)); err != nil {
		st.CancelRead(0)
		return nil
	}
	st.Close()
	var yes [1]byte
	if _, err := io.ReadFull(st, yes[:]); err != nil || yes[0] != snapshotConfirmed {
		st.CancelRead(0)
		return nil
	}
	st.CancelRead(0)
	return snap
}

// readConfirmations reads the parent's confirmations.
func (s *childEnd) readConfirmations() {
	for {
		b, err := s.conn.ReceiveDatagram(s.conn.Context())
		if err != nil {
			return
		}
		if len(b) == 0 || b[0] != kindConfirmation {
			continue
		}
		var h uplinkpb.Heard
		if err := proto.Unmarshal(b[1:], &h); err != nil {
			s.closeConn(codeMalformed, "datagram")
			return
		}
		s.confirmedAt.Store(int64(time.Since(s.startedAt)))
		s.requestedGap.Store(int64(min(time.Duration(h.GapMillis)*time.Millisecond, maxSummaryGap)))
		if h.Resync {
			s.resync.Store(true)
			signalChan(s.summaryReady)
		}
		if h.Seq > s.confirmedSeq.Load() {
			s.confirmedSeq.Store(h.Seq)
			signalChan(s.summaryReady)
		}
	}
}

// readDirectives reads one directive at a time; a superseded one is dropped.
func (s *childEnd) readDirectives() {
	for {
		st, err := s.conn.AcceptUniStream(s.conn.Context())
		if err != nil {
			return
		}
		st.SetReadDeadline(time.Now().Add(streamTimeout))
		kind, body, err := readMessage(st, maxDirectiveBytes)
		st.CancelRead(0)
		switch {
		case isMalformed(err):
			s.closeConn(codeMalformed, "directive")
			return
		case err != nil || kind != kindDirective:
			continue
		}
		brought, d, err := s.directives.readDirective(body)
		if err != nil {
			s.child.warnThrottled("parent's directive cannot be read", s.parent.String(), err)
			s.closeConn(codeMalformed, "directive")
			return
		}
		if d == nil {
			s.counters.skipped.Add(1)
			continue
		}
		s.counters.directives.Add(1)
		if brought != 0 {
			s.sendHeld()
		}
		if s.child.cfg.OnDirective != nil {
			s.child.cfg.OnDirective(s.parent, d)
		}
		if s.child.cfg.PositionInForce != nil {
			s.sendHeld()
		}
	}
}

// sendHeld reports to the parent which spec it need not send again, and which directive is in force. If the datagram
// is lost, the report after the next directive replaces it.
func (s *childEnd) sendHeld() {
	h := &uplinkpb.Held{Order: s.directives.specOrder}
	if s.child.cfg.PositionInForce != nil {
		p := s.child.cfg.PositionInForce()
		h.Generation, h.Index = p.Generation, p.Index
	}
	b, err := proto.Marshal(h)
	if err == nil {
		_ = s.conn.SendDatagram(append([]byte{kindHeldSpec}, b...))
	}
}

// acceptQueries answers queries, each in its own goroutine; QUIC's stream limit bounds them.
func (s *childEnd) acceptQueries() {
	for {
		st, err := s.conn.AcceptStream(s.conn.Context())
		if err != nil {
			return
		}
		s.workers.Go(func() { s.answerQuery(st) })
	}
}
