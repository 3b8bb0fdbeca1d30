package global

import (
	"bytes"
	"context"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/rhythm"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

const (
	// tick is how often the View is made anew without news, so that silence turns into loss.
	tick = 100 * time.Millisecond
	// grace is how long after its start a node takes a region that it never heard of for well.
	grace = 3 * time.Second
	// unconfirmed is how long without a leader makes answers stale: served all the same, and said to be so.
	unconfirmed = 30 * time.Second
	// peersEvery is how often gateways are told how their peers are.
	peersEvery = time.Second
)

// keeper makes the next View from agreed state and statements. It belongs to one goroutine.
type keeper struct {
	s       *Server
	frame   *frame
	badSpec uint64 // version that could not be read, so that it is logged once
	plan    *steer.Plan
	table   *steer.Table
	key     tableKey
	since   time.Time
	led     time.Time // when a leader was last known
	well    wellness
	told    time.Time
	calm    calm
	cookies cookies
	sealer  sealer
	memo    *memo
	near    *near
	muffle  muffle
}

// tableKey says what a table was compiled from.
type tableKey struct {
	frame *frame
	geo   *steer.Geography
	epoch uint64
	from  origin
}

// wellness is what the planner and the gateways must hear of at once.
type wellness struct {
	from           origin
	version, index uint64
	drained, gone  steer.Set
	unheard, dead  steer.Set
}

// newKeeper makes a first View, from the state that Raft restored or from the backup, so that queries find one.
func (s *Server) newKeeper(now time.Time) *keeper {
	k := &keeper{s: s, led: now, sealer: sealer{kept: s.signatures}}
	k.next(now)
	return k
}

func (s *Server) keep(ctx context.Context, k *keeper) {
	rhythm.Keep(ctx, s.news, rhythm.Gap, tick, k.next)
}

// next makes and publishes a View, and tells those who must act on it.
func (k *keeper) next(now time.Time) {
	st, from := k.s.source.choose(k.s.node.State(), k.s.node.Leader() != "", now)
	if st == nil || !k.reframe(st, from) {
		return
	}
	children := k.s.ingest.view(now)
	k.learn(children, now)
	k.recompile(st, from, now)
	v := k.assemble(st, from, children, now)
	k.s.view.Store(v)
	k.tell(v, now)
}

// reframe keeps the frame of the last spec that could be read: a spec that this version does not understand must not
// take a name off the air.
func (k *keeper) reframe(st *consensus.State, from origin) bool {
	atlas := k.s.cfg.Atlas.Atlas()
	if k.frame != nil && k.frame.version == st.SpecVersion && k.frame.atlas == atlas && bytes.Equal(k.frame.text, st.Spec) {
		return true
	}
	f, err := newFrame(st.SpecVersion, st.Spec, atlas)
	if err != nil {
		if k.badSpec != st.SpecVersion {
			k.badSpec = st.SpecVersion
			k.s.log.Error("spec cannot be used, the last one stays", "version", st.SpecVersion, telemetry.Err(err))
		}
		return k.frame != nil
	}
	if from == firstState {
		f.unsure()
	}
	k.frame = f
	k.s.tokens.Adopt(f.spec.Issuers)
	return true
}

func (k *keeper) recompile(st *consensus.State, from origin, now time.Time) {
	key := tableKey{k.frame, k.near.geo, st.PlanEpoch, from}
	if k.table != nil && key == k.key {
		return
	}
	if k.plan == nil || key.epoch != k.key.epoch || key.from != k.key.from {
		k.plan, k.since = k.read(st), now
	}
	k.table, k.key = steer.Recompile(k.table, k.frame.spec, k.near.geo, k.plan), key
}

// read decodes the agreed plan. One that cannot be read leaves the one in use.
func (k *keeper) read(st *consensus.State) *steer.Plan {
	if len(st.Plan) == 0 {
		return nil
	}
	p, err := plans.read(st.Plan)
	if err != nil {
		k.s.log.Error("plan cannot be used, the last one stays", "epoch", st.PlanEpoch, telemetry.Err(err))
		return k.plan
	}
	return p
}

func (k *keeper) assemble(st *consensus.State, from origin, children *capacity.View, now time.Time) *View {
	v := newView(k.frame, st, children, k.quorum(children, now), now, now.Sub(k.s.started) > grace)
	v.adopt(k.near)
	v.from, v.plan, v.planSince, v.table = from, k.plan, k.since, k.table
	v.stale = k.unconfirmed(now) || from == firstState
	v.led = k.led
	v.restless = k.calm.restless(v.drained, v.gone, now)
	v.secrets = k.cookies.of(st.TicketKeys, now)
	v.sealed = k.seal(st)
	k.memo = k.memo.of(v)
	v.memo = k.memo
	return v
}

// quorum is what the nodes together say of regions, and what this one's silence does not say.
func (k *keeper) quorum(children *capacity.View, now time.Time) *quorum {
	q := k.s.quorum(now)
	k.muffle.muster(k.frame, k.plan, now)
	silent := k.muffle.next(k.frame, children, k.s.node.Leader() != "", now)
	k.s.muffled.Store(k.muffle.deaf || !silent.Empty())
	q.mute(k.frame, silent)
	return q
}

func (k *keeper) unconfirmed(now time.Time) bool {
	if k.s.node.Leader() != "" {
		k.led = now
	}
	return now.Sub(k.led) > unconfirmed
}

// tell wakes the planner and the gateways when they must act, and the gateways every so often besides.
func (k *keeper) tell(v *View, now time.Time) {
	is := wellness{v.from, v.version, v.state.Index, v.drained, v.gone, v.unheard, v.dead}
	if is != k.well {
		if is.version != k.well.version || is.drained != k.well.drained || is.gone != k.well.gone || is.dead != k.well.dead {
			poke(k.s.replan)
		}
		if is.unheard != k.well.unheard {
			k.s.node.Nudge()
		}
		if v.from == agreedState {
			k.s.backup.offer(v.state)
		}
	}
	if is.version != k.well.version || is.from != k.well.from {
		k.s.parent.Recheck() // a region may have left the spec
	}
	if is != k.well || now.Sub(k.told) >= peersEvery {
		k.told = now
		k.s.parent.Wake()
	}
	k.well = is
}

// poke wakes a goroutine that will look at everything when it wakes.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
