package kube

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/dynamic"

	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/local/discover/podset"
)

// Watcher finds the workers of one entry of discover.kubernetes.
type Watcher struct {
	cfg       config.KubernetesDiscovery
	namespace string
	client    dynamic.Interface
	rules     podset.Rules
	onWorkers func([]config.WorkerEntry)
	log       *slog.Logger
	changed   chan struct{}

	mu       sync.Mutex // guards what Stats reads
	slices   *resourceWatch
	pods     *resourceWatch
	pools    *resourceWatch
	ended    map[string]float64 // failures of watches that were replaced
	ignored  map[string]float64
	problems map[podset.PodProblem]struct{} // logged

	poolSelector string // of the pods watch
	lastNote     string // the last note about the entry as a whole
}

// Stats are counts for metrics.
type Stats struct {
	// OutOfContact is how long the longest failing watch fails; 0 when none does.
	OutOfContact time.Duration
	// Failures counts failed lists and watches by kind.
	Failures map[string]float64
	// Ignored is the number of present problems with pods, by reason.
	Ignored map[string]float64
}

// New returns the watcher of an entry. isForbidden reports whether no worker may be at an address; onWorkers is called with
// the whole list after each change, from one goroutine.
func New(cfg config.KubernetesDiscovery, isForbidden func(netip.Addr) bool, log *slog.Logger, onWorkers func([]config.WorkerEntry)) (*Watcher, error) {
	client, namespace, err := openClient(&cfg)
	if err != nil {
		return nil, err
	}
	return newWatcher(client, namespace, cfg, isForbidden, log, onWorkers), nil
}

func newWatcher(client dynamic.Interface, namespace string, cfg config.KubernetesDiscovery, isForbidden func(netip.Addr) bool, log *slog.Logger, onWorkers func([]config.WorkerEntry)) *Watcher {
	return &Watcher{
		cfg: cfg, namespace: namespace, client: client, rules: podset.Rules{KubernetesDiscovery: cfg, IsForbidden: isForbidden},
		onWorkers: onWorkers, log: log.With("entry", describeEntry(&cfg)), changed: make(chan struct{}, 1),
		ended: map[string]float64{}, ignored: map[string]float64{}, problems: map[podset.PodProblem]struct{}{},
	}
}

// describeEntry names an entry in messages.
func describeEntry(cfg *config.KubernetesDiscovery) string {
	switch {
	case cfg.Service != "":
		return "service " + cfg.Service
	case cfg.InferencePool != "":
		return "inference_pool " + cfg.InferencePool
	case cfg.ServiceSelector != "":
		return "service_selector " + cfg.ServiceSelector
	}
	return "pod_selector " + cfg.PodSelector
}

// Run watches until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	if err := w.startWatches(ctx); err != nil {
		w.log.Error("workers in Kubernetes are not found", "error", err)
		return
	}
	defer w.stopWatches()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
		}
		t := time.NewTimer(rebuildDelay)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		w.rebuild(ctx)
	}
}

func (w *Watcher) markChanged() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// startWatches starts the watches that the entry needs from the beginning.
func (w *Watcher) startWatches(ctx context.Context) (err error) {
	slices := metav1.ListOptions{LabelSelector: w.cfg.ServiceSelector}
	if w.cfg.Service != "" {
		slices.LabelSelector = labelServiceName + "=" + w.cfg.Service
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.LabelSelector != "" {
		w.slices, err = startResourceWatch(ctx, w.client, slicesResource, w.namespace, slices, w.log, w.markChanged)
	}
	if err == nil && w.cfg.PodSelector != "" {
		w.pods, err = w.watchPods(ctx, w.cfg.PodSelector)
	}
	if err == nil && w.cfg.InferencePool != "" {
		one := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", w.cfg.InferencePool).String()}
		w.pools, err = startResourceWatch(ctx, w.client, poolsResource, w.namespace, one, w.log, w.markChanged)
	}
	return err
}

func (w *Watcher) watchPods(ctx context.Context, selector string) (*resourceWatch, error) {
	return startResourceWatch(ctx, w.client, podsResource, w.namespace, metav1.ListOptions{LabelSelector: selector}, w.log, w.markChanged)
}

func (w *Watcher) stopWatches() {
	for _, r := range []*resourceWatch{w.slices, w.pods, w.pools} {
		if r != nil {
			r.stop()
		}
	}
}

// rebuild builds the workers again, unless a first list is still missing or the pool cannot be used: the workers known
// stay in force then.
func (w *Watcher) rebuild(ctx context.Context) {
	if w.pools != nil && !w.applyPool(ctx) {
		return
	}
	for _, r := range []*resourceWatch{w.slices, w.pods} {
		if r != nil && !r.isSynced() {
			return
		}
	}
	reports, pods := listEndpoints(w.slices), listEndpoints(w.pods)
	endpoints := podset.MergeEndpoints(reports)
	if w.slices == nil {
		endpoints = podset.MergeEndpoints(pods)
	} else {
		endpoints = podset.AddPodDetails(endpoints, pods)
	}
	if len(endpoints) == 0 {
		w.note(w.emptyNote())
	} else {
		w.note("")
	}
	workers, problems := w.rules.BuildWorkers(endpoints)
	w.recordProblems(problems)
	w.onWorkers(workers)
}

// listEndpoints returns what the objects of a watch report. Objects that cannot be decoded report nothing.
func listEndpoints(r *resourceWatch) (out []podset.Endpoint) {
	if r == nil {
		return nil
	}
	for _, o := range r.objects() {
		if o.err != nil {
			r.log.Warn("object ignored: it cannot be decoded", "name", o.Name, "error", clipMessage(o.err))
		}
		out = append(out, o.endpoints...)
	}
	return out
}

// applyPool applies the InferencePool: its ports, and its selector with a new watch of pods where it changed. It reports
// whether the pool can be used.
func (w *Watcher) applyPool(ctx context.Context) bool {
	if !w.pools.isSynced() {
		return false
	}
	found := w.pools.objects()
	if len(found) == 0 {
		w.note(fmt.Sprintf("the namespace %s has no InferencePool %s: create it, or correct inference_pool", w.namespace, w.cfg.InferencePool))
		return false
	}
	if found[0].err != nil {
		w.note("the InferencePool cannot be used: " + clipMessage(found[0].err))
		return false
	}
	pool := found[0].pool
	w.rules.TargetPorts = pool.ports
	if w.pods != nil && pool.selector == w.poolSelector {
		return true
	}
	next, err := w.watchPods(ctx, pool.selector)
	if err != nil {
		w.note(err.Error())
		return false
	}
	last := w.pods
	w.mu.Lock()
	w.pods, w.poolSelector = next, pool.selector
	w.mu.Unlock()
	if last != nil {
		last.stop()
		var st Stats
		st.Failures = w.ended
		w.mu.Lock()
		last.addStats(&st, time.Now())
		w.mu.Unlock()
	}
	return true
}

// emptyNote explains that the entry selects no endpoint.
func (w *Watcher) emptyNote() string {
	switch {
	case w.pools != nil:
		return fmt.Sprintf("the InferencePool selects no pod: no pod of the namespace %s has the labels %s; label the pods, or correct the pool's selector", w.namespace, w.poolSelector)
	case w.cfg.Service != "":
		return fmt.Sprintf("the Service has no endpoints: check that it exists in the namespace %s and that its selector matches pods (kubectl get endpointslices -l %s=%s)", w.namespace, labelServiceName, w.cfg.Service)
	case w.slices != nil:
		return fmt.Sprintf("no EndpointSlice of the namespace %s with these labels has an endpoint: Kubernetes copies the labels of a Service to its slices, so label the Services", w.namespace)
	}
	return fmt.Sprintf("no pod of the namespace %s has these labels: label the pods, or correct pod_selector", w.namespace)
}

// note logs a note about the entry when it changes.
func (w *Watcher) note(text string) {
	if text != w.lastNote && text != "" {
		w.log.Warn("no workers in Kubernetes", "because", text)
	}
	w.lastNote = text
}

// recordProblems counts the problems and logs new ones.
func (w *Watcher) recordProblems(problems []podset.PodProblem) {
	counts := map[string]float64{}
	now := make(map[podset.PodProblem]struct{}, len(problems))
	logged := 0
	for _, p := range problems {
		counts[p.Reason]++
		now[p] = struct{}{}
		if _, known := w.problems[p]; known {
			continue
		}
		if logged++; logged <= maxLoggedProblems {
			w.log.Warn("pod", "pod", p.Pod, "reason", p.Reason, "because", p.Text)
		}
	}
	if logged > maxLoggedProblems {
		w.log.Warn("more pods have problems: the metric spillway_local_kubernetes_pod_problems counts them", "not_logged", logged-maxLoggedProblems)
	}
	w.mu.Lock()
	w.ignored, w.problems = counts, now
	w.mu.Unlock()
}

// Stats reads the counts.
func (w *Watcher) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := Stats{Failures: maps.Clone(w.ended), Ignored: maps.Clone(w.ignored)}
	for _, r := range []*resourceWatch{w.slices, w.pods, w.pools} {
		if r != nil {
			r.addStats(&st, time.Now())
		}
	}
	return st
}
