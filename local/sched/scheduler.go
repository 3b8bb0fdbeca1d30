package sched

import (
	mrand "math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/modelroute"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/modelload"
	"github.com/spillway-lb/spillway/local/perfmodel"
	"github.com/spillway-lb/spillway/local/queue"
	"github.com/spillway-lb/spillway/local/sharding"
)

// Scheduler decides for one zone which worker serves which request. Its collaborators share the zone's state and have
// one subject each; the scheduler's own methods are the events that concern several of them.
type Scheduler struct {
	*zoneState
	Registry    *WorkerRegistry
	Health      *HealthChecker
	Cache       *CacheTracker
	Loader      *ModelLoader
	Autoscaling *Autoscaling
	learner     *learner
	Deaths      *DeathTracker
	Retries     *RetryLimiter
	Admission   *Admission
	Reports     *Reporter
}

// Intervals at which the caller reports the passing of time.
const (
	// PatrolInterval is the interval of CheckWorkers. A probe of a frozen worker hangs until its timeout, so probes detect a
	// stall too late.
	PatrolInterval = 250 * time.Millisecond
	// PumpInterval is the interval of ServeAllQueues while requests wait: a worker's backlog also falls with time.
	PumpInterval = 10 * time.Millisecond
)

// DefaultPrefixIndexBytes bounds the memory of the prefix index where the configuration does not, in bytes.
const DefaultPrefixIndexBytes = 128 << 20

// SeedRandom returns the random source and the prefix secret of a scheduler whose decisions can be repeated.
func SeedRandom(seed uint64) (rng *mrand.Rand, prefixSecret uint64) {
	return mrand.New(mrand.NewPCG(seed, 0x51a)), seed
}

// Config configures a scheduler.
type Config struct {
	// Region, Zone and Name are the instance's path.
	Region, Zone, Name string
	// Policy is in force until ApplyPolicy.
	Policy *SchedulingPolicy
	// Rand is the source of all random decisions.
	Rand *mrand.Rand
	// PrefixSecret seeds the hashes of prompt prefixes, so that clients cannot construct collisions.
	PrefixSecret uint64
	// PrefixIndex bounds the memory of the prefix index, in bytes.
	PrefixIndex int
	// DecisionBytes bounds the log of decisions, in bytes; 0: none is kept.
	DecisionBytes int
	// Queue, Health and ModelLoad override the policy's settings; zero fields follow the policy.
	Queue     queue.Config
	Health    health.Config
	ModelLoad modelload.Config
}

// New returns the scheduler of a zone without workers.
func New(cfg Config) *Scheduler {
	z := newZoneState(cfg)
	s := &Scheduler{
		zoneState: z,
		Registry:  &WorkerRegistry{zoneState: z},
		Health:    &HealthChecker{zoneState: z},
		Cache:     &CacheTracker{zoneState: z},
		Loader:    &ModelLoader{zoneState: z, loadTimes: loadTimes{}, loadConfig: cfg.ModelLoad.WithDefaults()},
		learner:   &learner{zoneState: z, outputLengths: perfmodel.NewOutputLengths(maxLengthEntries)},
		Deaths:    &DeathTracker{zoneState: z},
		Retries:   &RetryLimiter{zoneState: z, Budget: RetryBurst},
	}
	s.Autoscaling = &Autoscaling{zoneState: z, autoscalers: map[string]*modelAutoscaler{}}
	s.Admission = &Admission{
		zoneState: z, prefixSecret: cfg.PrefixSecret, acks: map[string]capacity.LedgerAck{},
		loader: s.Loader, autoscaling: s.Autoscaling, learner: s.learner, retries: s.Retries,
	}
	s.Reports = &Reporter{zoneState: z, loader: s.Loader, autoscaling: s.Autoscaling, admission: s.Admission}
	return s
}

// ApplyAssignment puts an assignment in force and returns how many workers this instance gained and lost. Attempts in
// flight on a worker that moves to another instance finish here. Its learned rates are kept for when it returns.
func (s *Scheduler) ApplyAssignment(d *sharding.Assignment, cameToUs func(string) bool, now time.Time) (gained, lost int) {
	s.assignment = &shardAssignment{Assignment: *d, registeredHere: cameToUs}
	for _, w := range s.workers {
		owner := s.otherOwnerReason(w)
		switch {
		case owner == w.otherOwner:
			continue
		case owner == "":
			gained++
			w.ownedSince = now
		case w.otherOwner == "":
			lost++
		}
		w.otherOwner = owner
		s.Health.updatePanicMode(w, now)
		w.refreshViews(now)
	}
	if gained+lost > 0 {
		s.invalidatePlacement()
		s.Admission.ServeAllQueues(now)
	}
	return gained, lost
}

// outlierCheckInterval is the interval at which the workers of a model are compared with each other.
const outlierCheckInterval = 2 * time.Second

// runPeriodicChecks looks for what no single answer shows: outliers, and attempts that outlast a drain.
func (s *Scheduler) runPeriodicChecks(now time.Time) {
	s.Admission.enforceZoneDrain(now)
	for _, w := range s.WorkersByName() {
		w.drainTimer.SetDraining(w.drained, now)
		s.Health.enforceWorkerDrain(w, now)
		s.Cache.checkKVEvents(w, now)
	}
	for w := range s.leavingWorkers {
		w.drainTimer.SetDraining(true, now)
		s.Health.enforceWorkerDrain(w, now)
	}
	if now.Sub(s.Health.sweptAt) < outlierCheckInterval {
		return
	}
	s.Health.sweptAt = now
	for _, p := range s.groupsByModel() {
		s.Health.ejectOutlier(p, now)
		p.decayEstimates(now)
	}
}

// CheckWorkers checks every worker with answers under way and returns the names of those that it ejected. It also returns for
// how long this process was stopped before the check; 0 when it was not.
func (s *Scheduler) CheckWorkers(now time.Time) (stalled []string, pausedFor time.Duration) {
	s.Health.compensatePause(now)
	s.Health.patrolledAt, pausedFor, s.Health.pausedFor = now, s.Health.pausedFor, 0
	if s.Registry.rebuildPending {
		s.Registry.rebuildViews(now)
		s.Admission.ServeAllQueues(now)
	}
	s.runPeriodicChecks(now)
	for _, w := range s.WorkersByName() {
		if w.openAttempts > 0 && s.Health.checkStall(w, now) {
			w.refreshViews(now)
			stalled = append(stalled, w.Spec.Name)
		}
	}
	for w := range s.leavingWorkers {
		s.Health.checkStall(w, now)
	}
	if len(stalled) > 0 {
		s.Admission.ServeAllQueues(now)
	}
	return stalled, pausedFor
}

// ApplyPolicy puts a new policy in force.
func (s *Scheduler) ApplyPolicy(o *SchedulingPolicy, now time.Time) {
	if o.prefixSeed != s.policy.prefixSeed {
		s.Registry.resetSketches()
	}
	s.policy = o
	for _, w := range s.workers {
		s.setWorkerDrain(w, now)
		w.poolBits = modelroute.PoolsForLabels(o.Spec, w.Spec.Labels)
		w.overcommit.SetLimit(o.kvOvercommit(), now)
		w.breaker.SetConfig(o.healthConfig(s.cfg.Health))
	}
	for name, p := range s.groups {
		p.queue.SetConfig(o.queueConfig(name, s.cfg.Queue))
	}
	s.Registry.rebuildViews(now)
	s.Admission.ServeAllQueues(now)
}
