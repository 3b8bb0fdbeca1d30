package discover

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/discover/kube"
	"github.com/spillway-lb/spillway/local/discover/podset"
)

// coalesceDelay is how long a change waits for others, so that a starting zone causes one notification and not one
// per worker.
const coalesceDelay = 20 * time.Millisecond

// Config of the Sources.
type Config struct {
	// Static workers, from the configuration.
	Static []Worker
	// File of further workers, watched for changes; empty for none.
	File string
	// Poll is the interval at which the file is checked. Default 1s.
	Poll time.Duration
	// DNS are the names to look up for workers, and how, and the entries of Kubernetes clusters.
	DNS config.Discovery
	// Registration configures self-registration of workers; it is off without Listen.
	Registration config.Registration
	// Dir is where registered workers are persisted; empty disables that.
	Dir string
	// OnChange is called with the whole list at Start and after each change, from one goroutine at a time.
	OnChange func([]Worker)
	// Log of what is refused; nil discards.
	Log *slog.Logger
}

// Sources maintains the list of workers: it runs the sources, merges their lists, and reports changes.
type Sources struct {
	cfg                Config
	log                *slog.Logger
	file               *workersFile
	names              []*dnsName
	clusters           []*kube.Watcher
	registrationServer *RegistrationServer

	mu             sync.Mutex
	lists          sourceLists
	dnsWorkers     [][]Worker // by DNS name
	podWorkers     [][]Worker // by entry of discover.kubernetes
	sourceByWorker map[string]SourceKind
	conflicts      map[workerConflict]struct{}
	conflictCount  float64

	notifyMu     sync.Mutex // held while OnChange runs
	lastNotified []Worker
	changed      chan struct{}
	cancel       context.CancelFunc
	wg           sync.WaitGroup
}

// New checks the static workers and reads the file for the first time; a mistake in either is an error.
func New(cfg Config) (*Sources, error) {
	if cfg.OnChange == nil {
		return nil, errors.New("discover: Config.OnChange is required")
	}
	cfg.Static = slices.Clone(cfg.Static)
	for i := range cfg.Static {
		if cfg.Static[i].Weight == 0 {
			cfg.Static[i].Weight = 1
		}
	}
	if err := firstProblem("the configuration", cfg.Static); err != nil {
		return nil, err
	}
	s := &Sources{
		cfg: cfg, log: telemetry.LoggerOrDiscard(cfg.Log), conflicts: map[workerConflict]struct{}{}, changed: make(chan struct{}, 1),
		dnsWorkers: make([][]Worker, len(cfg.DNS.DNS)), podWorkers: make([][]Worker, len(cfg.DNS.Kubernetes)),
	}
	s.lists[SourceStatic] = cfg.Static
	if cfg.File != "" {
		var err error
		if s.file, err = openWorkersFile(cfg.File, cfg.Poll, s.log, func(ws []Worker) { s.setWorkers(SourceFile, ws) }); err != nil {
			return nil, err
		}
	}
	for i := range cfg.DNS.DNS {
		s.names = append(s.names, newDNSName(&cfg.DNS, i, s.log, func(ws []Worker) { s.setDNSWorkers(i, ws) }))
	}
	for i := range cfg.DNS.Kubernetes {
		c, err := kube.New(cfg.DNS.Kubernetes[i], IsForbiddenAddr, s.log, func(ws []Worker) { s.setPodWorkers(i, ws) })
		if err != nil {
			return nil, err
		}
		s.clusters = append(s.clusters, c)
	}
	if cfg.Registration.Listen != "" {
		var err error
		if s.registrationServer, err = newRegistrationServer(s, cfg.Registration, cfg.Dir); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Start reports the list and watches the sources until Stop.
func (s *Sources) Start(ctx context.Context) error {
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.notifyMerged(true)
	s.wg.Go(func() { s.notifyLoop(ctx) })
	if s.file != nil {
		s.wg.Go(func() { s.file.pollUntilDone(ctx) })
	}
	for _, n := range s.names {
		s.wg.Go(func() { n.lookupUntilDone(ctx) })
	}
	for _, c := range s.clusters {
		s.wg.Go(func() { c.Run(ctx) })
	}
	if s.registrationServer != nil {
		s.wg.Go(func() { s.registrationServer.runLeases(ctx) })
	}
	return nil
}

// Stop ends the watching and waits for it.
func (s *Sources) Stop() {
	if s.cancel != nil {
		s.cancel()
		s.wg.Wait()
	}
}

// Reload reads the files now. On an error the contents before it stay in force.
func (s *Sources) Reload() error {
	var errs []error
	if s.file != nil {
		errs = append(errs, s.file.Reload())
		s.notifyMerged(false)
	}
	if s.registrationServer != nil {
		errs = append(errs, s.registrationServer.tokens.reloadFile())
	}
	return errors.Join(errs...)
}

// RegistrationServer is the handler for registrations; nil when that is off.
func (s *Sources) RegistrationServer() *RegistrationServer { return s.registrationServer }

// SourceOf returns the source of a worker.
func (s *Sources) SourceOf(worker string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, ok := s.sourceByWorker[worker]; ok {
		return k.String()
	}
	return ""
}

// setWorkers replaces the workers of one source.
func (s *Sources) setWorkers(k SourceKind, ws []Worker) {
	s.mu.Lock()
	s.lists[k] = ws
	s.mu.Unlock()
	s.markChanged()
}

func (s *Sources) setDNSWorkers(i int, ws []Worker) {
	s.mu.Lock()
	s.dnsWorkers[i] = ws
	s.lists[SourceDNS] = slices.Concat(s.dnsWorkers...)
	s.mu.Unlock()
	s.markChanged()
}

func (s *Sources) setPodWorkers(i int, ws []Worker) {
	s.mu.Lock()
	s.podWorkers[i] = ws
	s.lists[SourceKubernetes] = slices.Concat(s.podWorkers...)
	s.mu.Unlock()
	s.markChanged()
}

func (s *Sources) markChanged() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// strongerHolder returns the source with precedence that has a worker of that name or URL.
func (s *Sources) strongerHolder(than SourceKind, w *Worker) (SourceKind, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range than {
		for i := range s.lists[k] {
			if o := &s.lists[k][i]; o.Name == w.Name || hostPort(o.URL) == hostPort(w.URL) {
				return k, true
			}
		}
	}
	return 0, false
}

// notifyLoop reports changes, several together if they are close in time.
func (s *Sources) notifyLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		}
		t := time.NewTimer(coalesceDelay)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		s.notifyMerged(false)
	}
}

// notifyMerged merges the lists and reports the result if it changed.
func (s *Sources) notifyMerged(always bool) {
	s.notifyMu.Lock()
	defer s.notifyMu.Unlock()
	s.mu.Lock()
	ws, from, clashes := s.lists.mergeSources()
	s.sourceByWorker = from
	s.recordConflicts(clashes)
	s.mu.Unlock()
	if always || !reflect.DeepEqual(ws, s.lastNotified) {
		s.lastNotified = ws
		s.cfg.OnChange(ws)
	}
}

// recordConflicts logs and counts each conflict when it begins.
func (s *Sources) recordConflicts(now map[workerConflict]struct{}) {
	for c := range now {
		if _, known := s.conflicts[c]; !known {
			s.conflictCount++
			s.log.Warn("worker left out", telemetry.KeyWorker, c.worker, "source", c.source.String(), "because", c.String())
		}
	}
	s.conflicts = now
}

// Stats are counts for metrics. Maps contain every possible key.
type Stats struct {
	// Workers in the list, by source.
	Workers map[string]int
	// Conflicts counts workers that were left out because of their name or URL.
	Conflicts float64
	// Lookups counts DNS lookups by outcome. OldestStale is the age of the oldest answer that is used after it
	// disappeared from DNS.
	Lookups     map[string]float64
	OldestStale time.Duration
	// OutOfContact is how long the API server of a Kubernetes cluster has been failing, APIFailures counts failed lists
	// and watches by kind, PodProblems is the number of present problems with pods, by reason.
	OutOfContact             time.Duration
	APIFailures, PodProblems map[string]float64
	// Registrations counts registrations and renewals, ExpiredLeases leases that were not renewed, Rejections
	// refusals by reason.
	Registrations, ExpiredLeases float64
	Rejections                   map[string]float64
}

// Stats reads the counts.
func (s *Sources) Stats() Stats {
	st := Stats{Workers: map[string]int{}, Lookups: map[string]float64{}, Rejections: map[string]float64{}, APIFailures: map[string]float64{}, PodProblems: map[string]float64{}}
	for k := range numSources {
		st.Workers[k.String()] = 0
	}
	s.mu.Lock()
	for _, k := range s.sourceByWorker {
		st.Workers[k.String()]++
	}
	st.Conflicts = s.conflictCount
	s.mu.Unlock()
	for _, o := range lookupOutcomes() {
		st.Lookups[o] = 0
	}
	for _, n := range s.names {
		n.mu.Lock()
		for o, c := range n.outcomeCounts {
			st.Lookups[o] += c
		}
		st.OldestStale = max(st.OldestStale, n.oldestStale)
		n.mu.Unlock()
	}
	s.addClusterStats(&st)
	for _, r := range rejectionReasons() {
		st.Rejections[r] = 0
	}
	if d := s.registrationServer; d != nil {
		d.mu.Lock()
		st.Registrations, st.ExpiredLeases = d.registered, d.leases.expiredCount
		maps.Copy(st.Rejections, d.rejections)
		d.mu.Unlock()
	}
	return st
}

// addClusterStats adds the counts of Kubernetes clusters.
func (s *Sources) addClusterStats(st *Stats) {
	for _, k := range kube.FailureKinds() {
		st.APIFailures[k] = 0
	}
	for _, r := range podset.Reasons() {
		st.PodProblems[r] = 0
	}
	for _, c := range s.clusters {
		one := c.Stats()
		st.OutOfContact = max(st.OutOfContact, one.OutOfContact)
		for k, n := range one.Failures {
			st.APIFailures[k] += n
		}
		for r, n := range one.Ignored {
			st.PodProblems[r] += n
		}
	}
}
