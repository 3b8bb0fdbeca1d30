package sched

import (
	"maps"
	mrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/decision"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/inflight"
	"github.com/spillway-lb/spillway/local/prefix"
	"github.com/spillway-lb/spillway/local/sharding"
)

// zoneState is what the scheduler's collaborators share: the workers, a modelGroup (view and queue) for
// each model, the in-flight ledger, the prefix index and the policy in force.
type zoneState struct {
	cfg              Config
	rng              *mrand.Rand
	policy           *SchedulingPolicy
	ledger           *inflight.Ledger
	prefixIndex      *prefix.Index
	workers          map[string]*Worker
	leavingWorkers   map[*Worker]struct{} // no longer declared, with attempts in flight
	groups           map[string]*modelGroup
	sorted           sortedLists                // workers and model groups, by name
	assignment       *shardAssignment           // of the workers to the zone's instances; nil: all are ours
	placement        *placementSnapshot         // which models are loaded where
	awaitedLoads     map[modelPoolKey]time.Time // until when a request waits for a load that only some pools' workers may do
	zoneDrain        health.DrainState          // since when the zone is drained
	decisions        *decision.Ring             // nil: decisions are not kept
	terminating      bool                       // the instance is stopping and cancels what still runs
	placementChanged bool                       // what is loaded must be checked: see TakePlacementChanged
}

// shardAssignment is the assignment of the zone's workers to its instances.
type shardAssignment struct {
	sharding.Assignment
	registeredHere func(worker string) bool
}

// sortedLists caches the scheduler's workers and model groups sorted by name. Operations on several of them run in this order
// instead of a map's, so that equal inputs have equal outcomes: the simulator depends on it.
type sortedLists struct {
	workers []*Worker
	groups  []*modelGroup
}

func newZoneState(cfg Config) *zoneState {
	return &zoneState{
		cfg: cfg, rng: cfg.Rand, policy: cfg.Policy,
		ledger: inflight.NewLedger(), prefixIndex: prefix.NewIndex(cfg.PrefixIndex),
		decisions: decision.NewRing(cfg.DecisionBytes),
		workers:   map[string]*Worker{}, leavingWorkers: map[*Worker]struct{}{}, groups: map[string]*modelGroup{},
	}
}

// MaxQueueWait is the longest wait in the queue of a request without a deadline: ten times the TTFT target of its
// class (at least 10 s), plus the expected load time of its model.
func (z *zoneState) MaxQueueWait(v *Request) time.Duration {
	return max(10*z.policy.TTFTTarget(v.Model, v.Class), 10*time.Second) + v.loadWait
}

// otherOwnerReason returns the status text of a worker that another instance owns; empty when this instance owns it.
func (z *zoneState) otherOwnerReason(w *Worker) string {
	if z.assignment == nil {
		return ""
	}
	name := w.Spec.Name
	if o := z.assignment.OwnerOf(name, z.assignment.registeredHere(name)); o != z.cfg.Name {
		return "served by " + o
	}
	return ""
}

// ownPortion returns this instance's part of a zone-wide minimum n, in proportion to its owned workers. It is rounded
// up, so that the instances together keep at least n, and at most one more for each instance.
func (z *zoneState) ownPortion(n int) int {
	own, all := z.CountOwned(), len(z.workers)
	if own == all {
		return n
	}
	return (n*own + all - 1) / all
}

// CountReadyWorkers counts the workers that may be chosen for a model.
func (z *zoneState) CountReadyWorkers(model string) (n int) {
	if p := z.groups[model]; p != nil {
		for i := range p.view.Workers {
			if p.view.Workers[i].DownReason == "" {
				n++
			}
		}
	}
	return n
}

// IsClosed reports whether the zone's drain has reached its deadline or the instance is terminating, so that no
// request is accepted.
func (z *zoneState) IsClosed(now time.Time) bool {
	return z.terminating || z.zoneDrain.IsOverdue(z.policy.drainDeadline(), now)
}

// CountOwned counts the workers that this instance serves.
func (z *zoneState) CountOwned() (n int) {
	for _, w := range z.workers {
		if w.otherOwner == "" {
			n++
		}
	}
	return n
}

// HasReadyWorker reports whether at least one worker takes requests. A worker owned by another instance counts: this
// instance would serve it if that one failed.
func (z *zoneState) HasReadyWorker() bool {
	for _, w := range z.workers {
		if w.unhealthyReason() == "" && len(w.viewSlots) > 0 {
			return true
		}
	}
	return false
}

// WorkersByName returns the declared workers sorted by name.
func (z *zoneState) WorkersByName() []*Worker {
	if z.sorted.workers == nil {
		for _, w := range z.workers {
			z.sorted.workers = append(z.sorted.workers, w)
		}
		slices.SortFunc(z.sorted.workers, func(a, b *Worker) int { return strings.Compare(a.Spec.Name, b.Spec.Name) })
	}
	return z.sorted.workers
}

// groupsByModel returns the model groups sorted by model.
func (z *zoneState) groupsByModel() []*modelGroup {
	if len(z.sorted.groups) != len(z.groups) { // groups are never removed
		z.sorted.groups = nil
		for _, p := range z.groups {
			z.sorted.groups = append(z.sorted.groups, p)
		}
		slices.SortFunc(z.sorted.groups, func(a, b *modelGroup) int { return strings.Compare(a.model, b.model) })
	}
	return z.sorted.groups
}

// setWorkerDrain sets how far the worker is drained, by the policy in force or by its source.
func (z *zoneState) setWorkerDrain(w *Worker, now time.Time) {
	share := z.policy.drainShare(z.cfg.Region, z.cfg.Zone, w.Spec.Name, now)
	if w.Spec.DrainCause != "" {
		share = 0
	}
	w.drained, w.drainedShare = share <= 0, 0
	if share > 0 {
		w.drainedShare = 1 - share
	}
}

// hasNoReadyWorker reports whether all workers of the model are down.
func (z *zoneState) hasNoReadyWorker(p *modelGroup) bool {
	for i := range p.view.Workers {
		if p.view.Workers[i].DownReason == "" {
			return false
		}
	}
	return true
}

// countOpenAttempts is how many answers are under way.
func (z *zoneState) countOpenAttempts() (n int) {
	for _, w := range z.workers {
		n += w.openAttempts
	}
	return n
}

// ModelContextTokens is the longest context of a model on its workers, prompt and answer together, in tokens; 0 when unknown.
func (z *zoneState) ModelContextTokens(model string) (n int64) {
	if p := z.groups[model]; p != nil {
		for i := range p.view.Workers {
			n = max(n, p.view.Workers[i].MaxContext)
		}
	}
	return n
}

// ServedModels lists the models that have a worker, in order.
func (z *zoneState) ServedModels() []string {
	var out []string
	for name, p := range z.groups {
		if len(p.workers) > 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// ReachedWorkers lists the workers that have answered a probe, sorted. It is not nil.
func (z *zoneState) ReachedWorkers() []string {
	out := []string{}
	for name, w := range z.workers {
		if !w.reading.ReadAt.IsZero() {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// ListWorkerNames lists the workers of the zone, sorted.
func (z *zoneState) ListWorkerNames() []string {
	return slices.Sorted(maps.Keys(z.workers))
}

// invalidatePlacement discards the snapshot, so that load actions are planned again.
func (z *zoneState) invalidatePlacement() { z.placement, z.placementChanged = nil, true }

// TakePlacementChanged reports whether load actions must be planned again since the last call.
func (z *zoneState) TakePlacementChanged() bool {
	was := z.placementChanged
	z.placementChanged = false
	return was
}
