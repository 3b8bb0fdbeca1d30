package global

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/planinput"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

const (
	// ticketKeyRotation is how long one ticket key signs.
	ticketKeyRotation = 24 * time.Hour
	// dutyTimeout bounds each write of the leader.
	dutyTimeout = 5 * time.Second
)

// leaderLoop does what the leader does for all nodes: its duties, and planning.
type leaderLoop struct {
	name, specName string
	log            *slog.Logger
	node           *consensus.Node
	snapshot       *currentSnapshot
	replan         chan struct{} // wakes it
	planner        *planner
	planBlock      *atomic.Pointer[planBlock]
	stateChooser   *stateChooser
	clock          *nodeClock
	switches       *switchDriver
	clockWarnedAt  time.Time // last clock warning
}

// runLeader runs on every node and acts only on the leader.
func (s *leaderLoop) runLeader(ctx context.Context) {
	term, p := uint64(0), s.planner
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.planInterval()):
		case <-s.replan:
			if !sleepFor(ctx, planinput.MinPlanInterval) {
				return
			}
		}
		if !s.node.IsLeader() {
			term = 0
			s.planBlock.Store(nil)
			p.observeReports(s.snapshot.Load(), time.Now())
			continue
		}
		if now := s.node.Status().Term; now != term {
			if !s.runDuty(ctx, "catching up as the new leader", s.node.AwaitBarrier) {
				continue
			}
			term, p = now, p.newForTerm()
		}
		s.runDuties(ctx)
		v := s.snapshot.Load()
		if v == nil {
			continue
		}
		s.runDuty(ctx, "planning", func(ctx context.Context) error {
			p.makePlan(ctx, v, time.Now())
			return nil
		})
	}
}

// isCurrent reports whether the snapshot shows all state agreed by now, including drains: a plan made from an older
// snapshot would send clients back to a region that an operator has just drained.
func (v *nodeSnapshot) isCurrent(st *consensus.State) bool {
	return v.source == agreedState && v.Version == st.SpecVersion && v.state.Index == st.Index
}

func (s *leaderLoop) planInterval() time.Duration {
	if v := s.snapshot.Load(); v != nil && v.Spec.Steering.Interval > 0 {
		return max(time.Duration(v.Spec.Steering.Interval), planinput.MinPlanInterval)
	}
	return time.Second / 4 // nothing to steer yet: check for a spec
}

// runDuties performs the writes that the leader makes for all nodes.
func (s *leaderLoop) runDuties(ctx context.Context) {
	st := s.node.State()
	if st.SpecVersion == 0 && s.stateChooser.specFile != nil {
		s.runDuty(ctx, "putting the first spec in force", s.putFirstSpec)
	}
	if len(st.TicketKeys) == 0 {
		s.runDuty(ctx, "making the first ticket key", s.node.RotateTicketKey)
	}
	s.endOrphanDrains(ctx, st)
	s.runTimedDuties(ctx, st)
}

// runTimedDuties performs the writes that depend on wall time. None takes place while this node's clock is wrong.
func (s *leaderLoop) runTimedDuties(ctx context.Context, st *consensus.State) {
	if clock := s.clock.compareClocks(time.Now()); clock.holdsDuties() {
		if clock.wrong && (s.clockWarnedAt.IsZero() || time.Since(s.clockWarnedAt) >= clockWarnEvery) {
			s.clockWarnedAt = time.Now()
			s.log.Warn("the leader's wall clock is wrong: drains do not end, region switches take no step, ticket keys are not rotated and signing the zone takes no step until it is corrected",
				"ahead_seconds", clock.ahead.Seconds(), "offsets", clock.formatOffsets(), "voters", clock.voters, "known", clock.known, "tolerance", clockTolerance.String())
		}
		return
	}
	now := s.clock.wallTime()
	due := findDueDuties(st, now)
	if due.rotateKey {
		s.runDuty(ctx, "rotating the ticket key", s.node.RotateTicketKey)
	}
	if due.stepSigning {
		s.runDuty(ctx, "taking the next step of signing the zone", func(ctx context.Context) error { return s.node.AdvanceSigning(ctx, now) })
	}
	if st.Switch.IsActive() {
		s.runDuty(ctx, "switching a region", func(ctx context.Context) error { return s.switches.advanceSwitch(ctx, st, now) })
	}
	if due.endDrains {
		s.runDuty(ctx, "ending drains", func(ctx context.Context) error { return s.node.ExpireDrains(ctx, now) })
	}
}

func (s *leaderLoop) putFirstSpec(ctx context.Context) error {
	_, err := s.node.PutSpec(ctx, 0, s.stateChooser.specFile.Spec, "file:"+s.specName)
	if errors.As(err, new(consensus.ErrConflict)) {
		return nil // another leader was faster
	}
	return err
}

// runDuty runs one write in bounded time and logs a failure.
func (s *leaderLoop) runDuty(ctx context.Context, doing string, f func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(ctx, dutyTimeout)
	defer cancel()
	if err := f(ctx); err != nil {
		s.log.Warn("leader could not finish a duty", "duty", doing, telemetry.ErrorAttr(err))
		return false
	}
	return true
}

// sleepFor returns false if ctx ends first.
func sleepFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
