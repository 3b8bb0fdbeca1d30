package sched

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/modelload"
	"github.com/spillway-lb/spillway/local/perfmodel"
	"github.com/spillway-lb/spillway/local/pick"
)

// grpcSupport is whether a worker supports gRPC.
type grpcSupport uint8

// WorkerSpec is what an operator declares about a worker, as far as it matters for scheduling.
type WorkerSpec struct {
	Name, URL string
	// Address is the IP address and port of URL, as a proxy names an endpoint; empty if URL has a host name or a path.
	Address string
	// GPU is the hardware type, such as "H100"; empty when not declared.
	GPU string
	// Weight is its share of the requests relative to others, for the weighted policies.
	Weight float64
	// Models are the models that it serves, where they are known before its engine has listed them.
	Models []report.WorkerModel
	Labels map[string]string
	// MaxModels is how many models fit in its memory; 0 when not declared.
	MaxModels int
	// Wake allows Spillway to put the engine to sleep and to wake it.
	Wake bool
	// DrainCause is why the source of the worker drains it, such as a terminating pod; empty when it may get requests.
	DrainCause string
	// KVRanks is the number of its streams of cache events, one for each data-parallel rank; 0 without.
	KVRanks int
}

// Backend is the side of a worker that does I/O. Its methods return at once.
type Backend interface {
	// EngineName is the engine's name, or report.NameAuto until it is detected.
	EngineName() string
	// LoadsModels and Sleeps report what the engine can do besides serving requests.
	LoadsModels() bool
	Sleeps() bool
	// RequestScrape has the worker scraped without waiting for the interval.
	RequestScrape()
}

// Worker is one inference server as the scheduler sees it.
type Worker struct {
	Spec      WorkerSpec
	Backend   Backend
	gpuBusy   float64 // mean utilization of its GPUs, 0 to 1, where an exporter reports it
	ledgerID  int32   // ledger slot
	breaker   *health.Breaker
	learner   *perfmodel.RateLearner
	prior     perfmodel.Prior
	latency   perfmodel.FirstTokenLatency
	arrivals  perfmodel.ArrivalStats // recent requests sent to it
	deepProbe health.DeepProbeTimer
	// overcommit is how much of the KV cache may be reserved.
	overcommit        perfmodel.Overcommit
	reading           report.Reading
	models            []report.WorkerModel
	modelSlots        map[string]*modelSlot // by model, including those that it could load
	sleep             sleepState
	modelsVersion     uint64 // counts changes of its slots, so that an older list of models is ignored
	surveyedEngine    string // the engine's name when its slots were last computed
	rememberedEngine  string // the engine persisted for its address; empty when none is
	grpcSupport       grpcSupport
	lastDeath         uint64    // id of its last death
	diedAt            time.Time // when that was noticed; zero: never
	inFlightAtDeath   int       // requests under way at that time
	viewSlots         []viewSlot
	poolBits          uint64            // pools that it is dedicated to, as bits
	drained           bool              // completely
	drainedShare      float64           // share of new requests that a drain under way keeps away
	drainTimer        health.DrainState // since when it is drained or gone
	otherOwner        string            // why another of the zone's instances serves it; empty when this one does
	ownedSince        time.Time         // when it was acquired from another instance
	removed           bool              // no longer declared: its answers finish, and it gets no new requests
	openAttempts      int               // attempts under way
	reportsCached     bool              // the engine reports cached tokens in its usage
	attempts          map[*Attempt]struct{}
	clientsBlocked    bool         // at the last check all its answers waited for slow clients
	kvEvents          kvEventState // its KV cache events, where it offers them
	probeFailure      ProbeFailure
	modelListFailure  ModelListFailure
	ejectionCause     ejectionCause
	lastFailedRequest SuspectRequest // the last request that got a plain error answer
	shownState        string         // its state when last recorded
	lastProbe         ProbePages     // what the last probe read
	metricsFailing    bool           // its metrics page could not be read last
	lastUseAt         time.Time      // when something last ran on it
}

// viewSlot is the worker's index in one model's view.
type viewSlot struct {
	group   *modelGroup
	index   int
	counted acceptanceCounts // the worker's part of the group's counts
}

// States of a worker as shown in status.
const (
	stateReady     = "ready"    // takes requests
	stateStarting  = "starting" // has not answered yet
	stateDraining  = "draining" // takes no new requests
	stateUnhealthy = "sick"     // ejected
)

// notReadyPrefix begins the reason of a worker that was never ready. The cause of its last failure follows.
const notReadyPrefix = "not ready: "

// handoverRamp is how long a worker taken over from another instance needs to reach its full share. The requests of
// the previous owner show only in scrapes, which are up to a second old. The share begins at one half, since no other
// instance serves the worker meanwhile.
const handoverRamp = 3 * time.Second

// handoverShare is the share, from 0.5 to 1, of a worker that was taken over from another instance.
func (w *Worker) handoverShare(now time.Time) float64 {
	if w.ownedSince.IsZero() {
		return 1
	}
	return min(1, 0.5+0.5*max(0, now.Sub(w.ownedSince)).Seconds()/handoverRamp.Seconds())
}

// maxTrialRequests is the limit of concurrent requests for a worker on trial or on probation, so that a worker that
// is still slow is not flooded. 0 means no limit.
func (w *Worker) maxTrialRequests() int32 {
	if n := w.breaker.MaxTrials(); n > 0 {
		return int32(n)
	}
	if w.learner.OnProbation() {
		return 1
	}
	return 0
}

// firstReadyModel returns the first model that the worker serves without loading it.
func (w *Worker) firstReadyModel() (string, bool) {
	for i := range w.models {
		if w.models[i].State == report.ModelReady { // a request for another model would load it
			return w.models[i].ID, true
		}
	}
	return "", false
}

// describeServedModels describes what a worker serves, for explanations of requests for another model.
func (w *Worker) describeServedModels() string {
	switch {
	case w.DownReason() != "" && len(w.models) == 0:
		return w.DownReason()
	case len(w.models) == 0:
		return "serves no model"
	}
	var names []string
	for _, m := range w.models[:min(len(w.models), maxNamedModels)] {
		names = append(names, m.ID)
	}
	out := "another model: serves " + strings.Join(names, ", ")
	if more := len(w.models) - len(names); more > 0 {
		out += fmt.Sprintf(" and %d more", more)
	}
	return out
}

// engineName is the engine's name. While that is not detected yet, it is the last engine known at the worker's address.
func (w *Worker) engineName() string {
	if name := w.Backend.EngineName(); name != report.NameAuto {
		return name
	}
	return w.rememberedEngine
}

// setPriorRates initializes the worker's rates from its GPU type and its first model.
func (w *Worker) setPriorRates() {
	model := ""
	if len(w.models) > 0 {
		model = w.models[0].ID
		if w.models[0].Parent != "" {
			model = w.models[0].Parent
		}
	}
	w.prior = perfmodel.EstimatePrior(w.Spec.GPU, model)
	w.learner = perfmodel.NewRateLearner(w.prior.Rates)
	w.latency = perfmodel.FirstTokenLatency{}
}

const (
	grpcUnknown     grpcSupport = iota
	grpcSupported               // it has answered a call
	grpcUnsupported             // it has answered a call with something other than gRPC
)

// DownReason returns why the worker is ineligible, as shown by status; empty when it is eligible.
func (w *Worker) DownReason() string { return cmp.Or(w.otherOwner, w.unhealthyReason()) }

// unhealthyReason is DownReason regardless of which instance serves the worker.
func (w *Worker) unhealthyReason() string {
	switch {
	case w.removed:
		return "gone"
	case w.drained:
		if w.Spec.DrainCause != "" {
			return stateDraining + ": " + w.Spec.DrainCause
		}
		return stateDraining
	case w.sleep.state == modelload.StateLoading:
		return "waking up"
	case w.sleep.state == modelload.StateUnloading:
		return "falling asleep"
	case w.reading.Asleep:
		return "asleep"
	case w.breaker.State() == health.Warming:
		return "warming up"
	case w.breaker.State() == health.Open:
		if w.reading.ReadAt.IsZero() {
			return w.probeFailure.notReadyReason()
		}
		return "ejected: " + w.breaker.Reason().String() + w.describeCause()
	case w.lacksModelList():
		return w.probeFailure.notReadyReason()
	}
	return ""
}

// statusName is the worker's state as shown by status.
func (w *Worker) statusName() string {
	switch {
	case w.drained:
		return stateDraining
	case w.breaker.State() == health.Open && w.reading.ReadAt.IsZero(), w.breaker.State() == health.Warming, w.lacksModelList():
		return stateStarting
	case w.breaker.State() == health.Open:
		return stateUnhealthy
	case w.reading.Asleep:
		return stateStarting
	}
	return stateReady
}

// pickView is the worker's snapshot in the view of one model.
func (w *Worker) pickView(model string, maxContext int64, now time.Time) pick.WorkerSnapshot {
	return pick.WorkerSnapshot{
		ID: w.ledgerID, Name: w.Spec.Name, DownReason: cmp.Or(w.DownReason(), w.notLoadedReason(model)), Share: w.breaker.Share(now) * w.handoverShare(now), DrainPart: w.drainedShare, MaxTrials: w.maxTrialRequests(),
		Weight: w.Spec.Weight, Rates: w.learner.Rates(), KVTotal: w.reading.KVTotal, Slots: w.reading.Slots, MaxContext: maxContext,
		Latency: &w.latency, Overcommit: w.overcommit.Factor(now), Adapter: w.adapterState(model), GPUBusy: w.gpuBusy, QueueingFactor: w.arrivals.QueueingFactor(), Pools: w.poolBits,
	}
}

// adapterState is whether a model that is an adapter is loaded on the worker, or could be.
func (w *Worker) adapterState(model string) pick.AdapterState {
	r := &w.reading
	if r.MaxAdapters <= 0 {
		return pick.AdapterNone
	}
	if m := w.findModel(model); m == nil || m.Parent == "" {
		return pick.AdapterNone
	}
	if _, held := slices.BinarySearch(r.Adapters, model); held {
		return pick.AdapterLoaded
	}
	if int64(len(r.Adapters)) < r.MaxAdapters {
		return pick.AdapterSlotFree
	}
	return pick.AdapterSlotsFull
}

// refreshViews updates the worker's snapshot in every view that contains it.
func (w *Worker) refreshViews(now time.Time) {
	for i := range w.viewSlots {
		s := &w.viewSlots[i]
		s.group.countWorker(w, s)
		v := s.group.view
		v.SetWorker(s.index, s.group.admitInPanic(w, w.pickView(s.group.model, v.Workers[s.index].MaxContext, now)))
	}
}

// findModel returns the model of that name, or nil.
func (w *Worker) findModel(name string) *report.WorkerModel {
	for i := range w.models {
		if w.models[i].ID == name {
			return &w.models[i]
		}
	}
	return nil
}

// ScrapeState returns the worker's last reading and the version of its list of models, which RecordScrape and SetModels take
// again.
func (w *Worker) ScrapeState() (last report.Reading, modelsVersion uint64) {
	return w.reading, w.modelsVersion
}
