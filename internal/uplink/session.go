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
	silentAfter   = 6 * time.Second       // without a word about our statements, though QUIC may be alive
	streamTimeout = time.Minute           // for the largest directive over the slowest link worth having
	granularity   = 20 * time.Millisecond // of the wait for a confirmation: a parent's scheduling, and timers
)

// session is the child's end of one connection.
type session struct {
	child    *Child
	conn     *quic.Conn
	parent   identity.ID
	news     chan struct{} // a statement was made, or the parent heard one
	version  uint32        // agreed on
	heardSeq atomic.Uint64
	gap      atomic.Int64 // between statements, that the parent asked for
	resync   atomic.Bool  // the parent asked for a snapshot
	sums     sums
	heardAt  atomic.Int64 // nanoseconds since begun
	begun    time.Time
	landed   chan *capacity.Summary // outcome of the snapshot under way
	orders   orders
	work     sync.WaitGroup
	done     chan struct{}
}

func startSession(c *Child, conn *quic.Conn, parent identity.ID, version uint32) *session {
	s := &session{
		child: c, conn: conn, parent: parent, version: version, begun: time.Now(),
		news: make(chan struct{}, 1), landed: make(chan *capacity.Summary, 1), done: make(chan struct{}),
	}
	for _, loop := range []func(){s.send, s.listen, s.takeDirectives, s.takeAsks} {
		s.work.Go(loop)
	}
	stop := endWithCertificate(conn, c.log)
	go func() {
		s.work.Wait()
		stop()
		close(s.done)
	}()
	return s
}

// close ends the connection and waits for the session's goroutines.
func (s *session) close(code quic.ApplicationErrorCode, why string) {
	s.conn.CloseWithError(code, why)
	<-s.done
}

func (s *session) cause() error { return context.Cause(s.conn.Context()) }

// fail ends the connection from within one of its own goroutines.
func (s *session) fail(code quic.ApplicationErrorCode, why string) { s.conn.CloseWithError(code, why) }

// send is the one goroutine that owns the outbox. Statements come at every interval, so they are its clock too.
func (s *session) send() {
	out := outbox{patches: s.version >= versionOfPatches}
	giveUp := func() {} // the snapshot under way
	ended := s.conn.Context().Done()
	doubt := time.NewTimer(time.Hour) // the newest datagram is not confirmed in time: it may be lost
	defer doubt.Stop()
	for {
		select {
		case <-ended:
			return
		case landed := <-s.landed:
			out.settle(landed, time.Now())
		case <-s.news:
		case <-doubt.C:
			if out.heard(s.heardSeq.Load()); out.unheard() {
				s.child.Wake() // for another statement, which will not be kept back
			}
		}
		now := time.Now()
		out.heard(s.heardSeq.Load())
		out.offer(s.child.latest.Load())
		out.patience, out.gap = s.patience(), time.Duration(s.gap.Load())
		out.resync = out.resync || s.resync.Swap(false)
		if b := out.datagram(now); b != nil {
			s.sendDatagram(&out, b)
			doubt.Reset(out.wait())
		}
		if !out.unheard() {
			doubt.Stop()
		}
		if snap := out.snapshot(now); snap != nil {
			s.sums.snapshots.Add(1)
			ctx, cancel := context.WithCancel(s.conn.Context())
			s.work.Go(func() {
				defer cancel()
				s.landed <- s.sendSnapshot(ctx, snap)
			})
			giveUp = cancel
		}
		if out.hopeless(now, s.silence(now)) {
			giveUp()
		}
		if s.silence(now) > silentAfter {
			s.fail(codeSilent, "nothing heard")
			return
		}
	}
}

// silence is how long the parent has said nothing.
func (s *session) silence(now time.Time) time.Duration {
	return now.Sub(s.begun) - time.Duration(s.heardAt.Load())
}

// patience is the probe timeout of RFC 9002, section 6.2.1. The parent confirms at once, so nothing is added for its delay.
func (s *session) patience() time.Duration {
	stats := s.conn.ConnectionStats()
	return stats.SmoothedRTT + max(4*stats.MeanDeviation, granularity)
}

// sendDatagram cannot block: the window is far smaller than QUIC's queue.
func (s *session) sendDatagram(out *outbox, b []byte) {
	var tooLarge *quic.DatagramTooLargeError
	if err := s.conn.SendDatagram(b); errors.As(err, &tooLarge) {
		out.crowded = true
	}
	s.sums.deltas.Add(1)
}

// sendSnapshot is nil unless the parent confirmed. The send loop starts one at a time and landed has room for it.
func (s *session) sendSnapshot(ctx context.Context, snap *capacity.Summary) *capacity.Summary {
	b, err := capacity.Encode(snap)
	if err != nil {
		s.child.warn("statement cannot be encoded", s.parent.String(), err)
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
	if _, err := io.ReadFull(st, yes[:]); err != nil || yes[0] != confirmed {
		st.CancelRead(0)
		return nil
	}
	st.CancelRead(0)
	return snap
}

// listen reads what the parent heard.
func (s *session) listen() {
	for {
		b, err := s.conn.ReceiveDatagram(s.conn.Context())
		if err != nil {
			return
		}
		if len(b) == 0 || b[0] != kindHeard {
			continue
		}
		var h uplinkpb.Heard
		if err := proto.Unmarshal(b[1:], &h); err != nil {
			s.fail(codeRubbish, "datagram")
			return
		}
		s.heardAt.Store(int64(time.Since(s.begun)))
		s.gap.Store(int64(min(time.Duration(h.GapMillis)*time.Millisecond, paceMost)))
		if h.Resync {
			s.resync.Store(true)
			poke(s.news)
		}
		if h.Seq > s.heardSeq.Load() {
			s.heardSeq.Store(h.Seq)
			poke(s.news)
		}
	}
}

// takeDirectives reads one directive at a time; an overtaken one is dropped.
func (s *session) takeDirectives() {
	for {
		st, err := s.conn.AcceptUniStream(s.conn.Context())
		if err != nil {
			return
		}
		st.SetReadDeadline(time.Now().Add(streamTimeout))
		kind, body, err := readMessage(st, maxDirective)
		st.CancelRead(0)
		switch {
		case isRubbish(err):
			s.fail(codeRubbish, "directive")
			return
		case err != nil || kind != kindDirective:
			continue
		}
		brought, d, err := s.orders.take(body)
		if err != nil {
			s.child.warn("parent's directive cannot be read", s.parent.String(), err)
			s.fail(codeRubbish, "directive")
			return
		}
		if d == nil {
			s.sums.passed.Add(1)
			continue
		}
		s.sums.directives.Add(1)
		if brought != 0 {
			s.stateHeld()
		}
		if s.child.cfg.OnDirective != nil {
			s.child.cfg.OnDirective(s.parent, d)
		}
		if s.child.cfg.InForce != nil {
			s.stateHeld()
		}
	}
}

// stateHeld states to the parent which spec it need not send again, and which directive is in force. When the datagram is
// lost, the next directive makes it good.
func (s *session) stateHeld() {
	h := &uplinkpb.Held{Order: s.orders.specOf}
	if s.child.cfg.InForce != nil {
		p := s.child.cfg.InForce()
		h.Generation, h.Index = p.Generation, p.Index
	}
	b, err := proto.Marshal(h)
	if err == nil {
		_ = s.conn.SendDatagram(append([]byte{kindHeld}, b...))
	}
}

// takeAsks answers questions, each in its own goroutine; QUIC's stream limit bounds them.
func (s *session) takeAsks() {
	for {
		st, err := s.conn.AcceptStream(s.conn.Context())
		if err != nil {
			return
		}
		s.work.Go(func() { s.answer(st) })
	}
}
