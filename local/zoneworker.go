package local

import (
	"context"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/sched"
)

// zoneWorker is a worker of the zone: the scheduler's state of it, and what reads and controls its engine.
type zoneWorker struct {
	*sched.Worker
	declared  discover.Worker
	engine    engine.Engine
	cancel    context.CancelFunc
	scrapeNow chan struct{} // triggers a scrape

	gpus          engine.GPUReadings // readings of its GPU exporter, where it has one; the scheduler's lock guards it
	failedScrapes atomic.Int64       // metrics pages that could not be read
	// pauseExcused means that the last probe timed out while this process was stopped. Only the worker's own loop uses it.
	pauseExcused bool
	modelsStale  atomic.Bool // its list of models must be fetched again

	loopTarget     atomic.Pointer[loopTarget]
	usageRefusedAt atomic.Int64 // when it last refused a request for a stream's usage, in Unix nanoseconds
}

// zoneWorkerOf returns the worker of an attempt.
func zoneWorkerOf(at *sched.Attempt) *zoneWorker { return at.Worker.Backend.(*zoneWorker) }

// EngineName is the engine's name, or engine.NameAuto until it is detected.
func (w *zoneWorker) EngineName() string { return w.engine.Name() }

// LoadsModels reports whether the engine loads and unloads models while it runs.
func (w *zoneWorker) LoadsModels() bool {
	_, loads := engine.AsCapability[engine.ModelLoader](w.engine)
	return loads
}

// Sleeps reports whether the engine can release its GPU memory.
func (w *zoneWorker) Sleeps() bool {
	_, sleeps := engine.AsCapability[engine.SleepController](w.engine)
	return sleeps
}

// RequestScrape triggers a scrape of the worker without waiting for the interval.
func (w *zoneWorker) RequestScrape() { wakeLoop(w.scrapeNow) }

// engineAccess returns how the worker is reached, for the hints in causes.
func (w *zoneWorker) engineAccess() engine.AccessMode {
	sent := w.declared.Access()
	return engine.AccessMode{TLS: strings.HasPrefix(w.declared.URL, "https:"), HasKey: sent.HasCredentials()}
}

// endpointAddress returns the address and port of a worker's URL as endpoint pickers name it. It is empty if the URL has a host
// name, which a proxy would have to resolve, or a path, which it would have to add.
func endpointAddress(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || strings.Trim(u.Path, "/") != "" {
		return ""
	}
	at, err := netip.ParseAddrPort(dialHostPort(u))
	if err != nil {
		return ""
	}
	return at.String()
}

// toWorkerSpec returns what the scheduler needs to know of a declared worker.
func toWorkerSpec(d *discover.Worker) sched.WorkerSpec {
	s := sched.WorkerSpec{Name: d.Name, URL: d.URL, Address: endpointAddress(d.URL), GPU: d.GPU, Weight: d.Weight, Labels: d.Labels, MaxModels: d.MaxModels, Wake: d.Wake, DrainCause: d.DrainCause, KVRanks: len(d.KVEvents)}
	for _, m := range d.Models {
		s.Models = append(s.Models, engine.WorkerModel{ID: m})
	}
	return s
}
