package global

import (
	"context"
	"errors"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

const (
	// rotateEvery is how long one ticket key signs.
	rotateEvery = 24 * time.Hour
	// dutyTimeout bounds each write of the leader.
	dutyTimeout = 5 * time.Second
	// restless is the least time between two plans, however much news there is.
	restless = 100 * time.Millisecond
)

// lead runs on every node and acts only at the leader.
func (s *Server) lead(ctx context.Context) {
	term, p := uint64(0), &planner{s: s, node: s.node}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.interval()):
		case <-s.replan:
			if !sleep(ctx, restless) {
				return
			}
		}
		if !s.node.IsLeader() {
			term = 0
			s.planBlock.Store(nil)
			p.watch(s.view.Load(), time.Now())
			continue
		}
		if now := s.node.Status().Term; now != term {
			if !s.within(ctx, "catching up as the new leader", s.node.Barrier) {
				continue
			}
			term, p = now, &planner{s: s, node: s.node, bounds: p.bounds}
		}
		s.duties(ctx)
		v := s.view.Load()
		if v == nil {
			continue
		}
		s.within(ctx, "planning", func(ctx context.Context) error {
			p.plan(ctx, v, time.Now())
			return nil
		})
	}
}

// current reports whether the View shows all that is agreed by now, drains included: a plan made from an older View
// would send clients back to where an operator has just called them away from.
func (v *View) current(st *consensus.State) bool {
	return v.from == agreedState && v.version == st.SpecVersion && v.state.Index == st.Index
}

func (s *Server) interval() time.Duration {
	if v := s.view.Load(); v != nil && v.spec.Steering.Interval > 0 {
		return max(time.Duration(v.spec.Steering.Interval), restless)
	}
	return time.Second / 4 // nothing to steer yet: look out for a spec
}

// duties are the writes that a leader owes the others.
func (s *Server) duties(ctx context.Context) {
	st, now := s.node.State(), time.Now()
	if st.SpecVersion == 0 && s.source.first != nil {
		s.within(ctx, "putting the first spec in force", s.putFirstSpec)
	}
	if len(st.TicketKeys) == 0 || now.Sub(st.TicketKeys[0].At) > rotateEvery {
		s.within(ctx, "rotating the ticket key", s.node.RotateTicketKey)
	}
	if st.Signing.Ready(now) {
		s.within(ctx, "taking the next step of signing the zone", s.stepSigning)
	}
	s.endOrphans(ctx, st)
	for _, d := range st.Drains {
		if !d.Until.IsZero() && !now.Before(d.Until) {
			s.within(ctx, "ending drains", func(ctx context.Context) error { return s.node.Expire(ctx, now) })
			break
		}
	}
}

func (s *Server) stepSigning(ctx context.Context) error {
	return s.node.StepSigning(ctx, time.Now())
}

func (s *Server) putFirstSpec(ctx context.Context) error {
	_, err := s.node.PutSpec(ctx, 0, s.source.first.Spec, "file:"+s.cfg.SpecName)
	if errors.As(err, new(consensus.ErrConflict)) {
		return nil // another leader was faster
	}
	return err
}

// within does one thing in bounded time and logs why it failed.
func (s *Server) within(ctx context.Context, doing string, f func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(ctx, dutyTimeout)
	defer cancel()
	if err := f(ctx); err != nil {
		s.log.Warn("leader could not finish a duty", "duty", doing, telemetry.Err(err))
		return false
	}
	return true
}

// sleep is false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
