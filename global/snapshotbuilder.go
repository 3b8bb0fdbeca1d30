package global

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/liveness"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/debounce"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// snapshotBuilder builds and publishes the next snapshot from agreed state and capacity summaries. It belongs to one
// goroutine.
type snapshotBuilder struct {
	s              *Server
	core           snapshot.Builder
	policy         *nodePolicy
	badSpecVersion uint64 // the version that could not be read, so that it is logged once
	plan           *steer.Plan
	planKey        planKey
	planSince      time.Time
	leaderSeenAt   time.Time // when a leader was last known
	published      publishedState
	peersSentAt    time.Time
	cookieSecrets  cookieSecretCache
	zoneSigner     zoneSigner
	pickCache      *pickCache
	measurements   measurements
}

// planKey identifies what the plan in use was decoded for.
type planKey struct {
	epoch  uint64
	source stateSource
	policy *nodePolicy
}

// publishedState is the part of a snapshot whose change the planner and the gateways receive at once.
type publishedState struct {
	source                    stateSource
	version, index            uint64
	drained, unreachableByAll steer.RegionSet
	unreachable, dead         steer.RegionSet
}

// newSnapshotBuilder builds a first snapshot from the state that Raft restored or from the backup, so that queries
// find one.
func newSnapshotBuilder(s *Server, now time.Time) *snapshotBuilder {
	k := &snapshotBuilder{
		s: s, core: snapshot.Builder{MaxMeasurementAge: s.cfg.MaxMeasurementAge}, leaderSeenAt: now, zoneSigner: zoneSigner{signatures: s.signatures},
		measurements: measurements{persisted: s.backup.restoredRTTs, readAt: s.backup.loadedAt},
	}
	k.publishNext(now)
	return k
}

func (k *snapshotBuilder) rebuildLoop(ctx context.Context) {
	debounce.RunOnChange(ctx, k.s.snapshot.rebuild, debounce.MinViewInterval, snapshot.RebuildInterval, k.publishNext)
}

// publishNext builds and publishes a snapshot and notifies those that must act on it.
func (k *snapshotBuilder) publishNext(now time.Time) {
	k.s.clock.compareClocks(now)
	st, from := k.s.stateChooser.chooseState(k.s.node.State(), k.s.node.Leader() != "", now)
	if st == nil || !k.applyPolicy(st, from) {
		return
	}
	children := k.s.summaries.capacityView(now)
	k.refreshRTTs(children, now)
	k.refreshPlan(st, from, now)
	v := k.buildSnapshot(st, from, children, now)
	k.s.snapshot.Store(v)
	k.notifyChanges(v, now)
}

// applyPolicy keeps the policy of the last readable spec: a spec that this version cannot decode must not remove
// names from DNS.
func (k *snapshotBuilder) applyPolicy(st *consensus.State, from stateSource) bool {
	atlas := k.s.cfg.Atlas.Atlas()
	if k.policy != nil && k.policy.Version == st.SpecVersion && k.policy.atlas == atlas && bytes.Equal(k.policy.Text, st.Spec) {
		return true
	}
	f, err := newNodePolicy(st.SpecVersion, st.Spec, atlas)
	if err != nil {
		if k.badSpecVersion != st.SpecVersion {
			k.badSpecVersion = st.SpecVersion
			k.s.log.Error("spec cannot be used, the last one stays", "version", st.SpecVersion, telemetry.ErrorAttr(err))
		}
		return k.policy != nil
	}
	if from == specFileState {
		f.disableNegativeCaching()
	}
	k.policy = f
	k.s.tokenVerifier.SetIssuers(f.Spec.Issuers)
	return true
}

// refreshPlan decodes the agreed plan if it is another one.
func (k *snapshotBuilder) refreshPlan(st *consensus.State, from stateSource, now time.Time) {
	key := planKey{st.PlanEpoch, from, k.policy}
	if key == k.planKey {
		return
	}
	if k.plan == nil || key.epoch != k.planKey.epoch || key.source != k.planKey.source {
		k.plan, k.planSince = k.decodeAgreedPlan(st), now
	}
	k.planKey = key
}

// decodeAgreedPlan decodes the agreed plan. If it cannot be read, the plan in use stays.
func (k *snapshotBuilder) decodeAgreedPlan(st *consensus.State) *steer.Plan {
	if len(st.Plan) == 0 {
		return nil
	}
	p, err := planCache.decodeText(st.Plan)
	if err != nil {
		k.s.log.Error("plan cannot be used, the last one stays", "epoch", st.PlanEpoch, telemetry.ErrorAttr(err))
		return k.plan
	}
	return p
}

func (k *snapshotBuilder) buildSnapshot(st *consensus.State, from stateSource, children *capacity.CapacityView, now time.Time) *nodeSnapshot {
	in := snapshot.Inputs{
		Policy: k.policy.SteeringPolicy, Drains: toPathDrains(st.Drains), Children: children, Votes: k.collectVotes(now),
		Now: now, WallShift: k.s.clock.wallShift(), Settled: now.Sub(k.s.startedAt) > snapshot.StartupGrace,
	}
	v := newNodeSnapshot(k.policy, st, k.core.BuildNext(in, k.plan, k.s.node.Leader() != ""))
	k.s.silenceSuppressed.Store(k.core.IsSilenceSuppressed())
	v.source, v.planSince = from, k.planSince
	v.stale = k.isUnconfirmed(now) || from == specFileState
	v.leaderSeenAt = k.leaderSeenAt
	v.cookieSecrets = k.cookieSecrets.secretsFor(st.TicketKeys, now)
	v.signedZone = k.signZone(st)
	k.pickCache = k.pickCache.reuseFor(v)
	v.pickCache = k.pickCache
	return v
}

// refreshRTTs evaluates the measured RTTs when they are due, and has them persisted.
func (k *snapshotBuilder) refreshRTTs(children *capacity.CapacityView, now time.Time) {
	if !k.core.NeedsRTTs(k.policy.SteeringPolicy, children, now) {
		return
	}
	all, measuring := k.measurements.mergeReports(children, now), snapshot.CountMeasuringRegions(children)
	k.core.RefreshRTTs(k.policy.SteeringPolicy, all, measuring, now)
	k.persistMeasured(all, measuring, now)
}

func (k *snapshotBuilder) isUnconfirmed(now time.Time) bool {
	if k.s.node.Leader() != "" {
		k.leaderSeenAt = now
	}
	return now.Sub(k.leaderSeenAt) > snapshot.StaleAfter
}

// notifyChanges wakes the planner and the gateways when they must act, and the gateways also every snapshot.PeersInterval.
func (k *snapshotBuilder) notifyChanges(v *nodeSnapshot, now time.Time) {
	is := publishedState{v.source, v.Version, v.state.Index, v.Drained, v.UnreachableByAll, v.Unreachable, v.Dead}
	if is != k.published {
		if is.version != k.published.version || is.drained != k.published.drained || is.unreachableByAll != k.published.unreachableByAll || is.dead != k.published.dead {
			wakeLoop(k.s.replan)
		}
		if is.unreachable != k.published.unreachable {
			k.s.node.GossipNow()
		}
		if v.source == agreedState {
			k.s.backup.enqueueState(v.state)
		}
	}
	if is.version != k.published.version || is.source != k.published.source {
		k.s.parent.RecheckSessions() // a region may have left the spec
	}
	if is != k.published || now.Sub(k.peersSentAt) >= snapshot.PeersInterval {
		k.peersSentAt = now
		k.s.parent.PushDirectives()
	}
	k.published = is
}

// wakeLoop wakes a goroutine that then examines everything.
func wakeLoop(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// collectVotes returns the other nodes' valid reports.
func (k *snapshotBuilder) collectVotes(now time.Time) *liveness.Votes {
	return &liveness.Votes{Self: k.s.cfg.Name, Voters: voterNames(k.s.node), Reports: k.s.peerReports.freshReports(now)}
}

// persistMeasured includes the RTTs in the backup from its next write on, and triggers a write when one is due.
func (k *snapshotBuilder) persistMeasured(all []snapshot.RegionRTTs, measuring int, now time.Time) {
	b := k.s.backup
	if b == nil || b.path == "" {
		return
	}
	b.currentRTTs.Store(&datedRTTs{all, k.s.cfg.MaxMeasurementAge, k.s.clock.correctedWallTime()})
	if v := k.s.snapshot.Load(); v != nil && v.source == agreedState && k.measurements.isWriteDue(measuring, now) {
		b.enqueueState(v.state)
	}
}

// describeRTT describes an RTT and its source.
func describeRTT(region string, e *geo.RTTEstimate) string {
	if e.Source == geo.RTTSourcePrior {
		return fmt.Sprintf("%s: rtt %s ms, prior by distance, nothing measured", region, formatMillis(e.RTT.Seconds()))
	}
	return fmt.Sprintf("%s: rtt %s ms, %s: median %s ms, n=%.0f, age %s; prior %s ms", region, formatMillis(e.RTT.Seconds()), e.Source,
		formatMillis(e.Measured.Median.Seconds()), e.Measured.Samples, e.Measured.Age.Round(time.Second), formatMillis(e.Prior.Seconds()))
}

// rttTXTFields returns the same for a TXT record.
func rttTXTFields(e *geo.RTTEstimate) []string {
	out := []string{"rtt_ms=" + formatMillis(e.RTT.Seconds()), "rtt_source=" + e.Source}
	if e.Source != geo.RTTSourcePrior {
		out = append(out, "rtt_n="+strconv.FormatFloat(e.Measured.Samples, 'f', 0, 64),
			"rtt_age_s="+strconv.Itoa(int(e.Measured.Age.Seconds())), "rtt_prior_ms="+formatMillis(e.Prior.Seconds()))
	}
	return out
}
