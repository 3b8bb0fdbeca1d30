package local

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/route"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/batch"
)

// batcher gives each model whose requests are merged a bus of its own, made when somebody first wants to ride.
type batcher struct {
	agent *Agent
	mu    sync.Mutex
	buses map[string]*bus
	shut  bool

	size, delay   *prometheus.HistogramVec
	calls, refuse *prometheus.CounterVec
	shared        *prometheus.CounterVec
	riding        *prometheus.GaugeVec
}

func newBatcher(a *Agent) *batcher {
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "spillway_local_batch_" + name, Help: help, Buckets: buckets}, []string{"model"})
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_local_batch_" + name, Help: help}, append([]string{"model"}, labels...))
	}
	b := &batcher{
		agent: a, buses: map[string]*bus{},
		size:   histogram("size", "Inputs or rows in one call of a worker that may be merged.", []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 1024}),
		delay:  histogram("delay_seconds", "Time that a request waited for others to share its call.", telemetry.WaitBuckets()),
		calls:  counter("calls_total", "Calls made for requests that may be merged, by why each was made when it was.", "reason"),
		refuse: counter("splits_total", "Merged calls whose requests were sent again, each alone, by what came of the call: refused, or an answer that did not add up.", "cause"),
		shared: counter("shared_total", "Requests that were given the answer to an identical one."),
		riding: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "spillway_local_batch_riding", Help: "Requests that wait for others or for the answer of their call."}, []string{"model"}),
	}
	a.cfg.Registry.MustRegister(b.size, b.delay, b.calls, b.refuse, b.shared, b.riding)
	return b
}

// rider is one request that waits for its share of a call.
type rider struct {
	visit  *visit
	part   *batch.Part
	tenant string // whose requests it may share a call with
	joined time.Time
	done   chan *share // takes one
	berth  *berth      // the bus's own
}

// share is what a rider gets of a call; nil: it must go alone.
type share struct {
	status int
	header http.Header // not to be changed: others have it too
	body   batch.Answer
}

// embed takes one request for embeddings.
func (a *Agent) embed(w http.ResponseWriter, r *http.Request) {
	v, refusal := a.read(w, r, openai.ShapeEmbeddings)
	if refusal != nil {
		a.refuseUnread(w, refusal)
		return
	}
	defer v.charge.Release()
	goes := v.goes()
	part, ok := batch.ReadEmbeddings(goes.Bytes())
	if ok && part.Items > 1 {
		v.longest = max(1, v.estimate*part.Longest/part.Weight)
	}
	if !ok || !a.merges(v) || a.floor.goesAlone(v) {
		a.serve(w, v)
		return
	}
	a.batcher.ride(w, v, part)
}

// merges says whether the spec lets a request share a call, and the request does too: what steers the engine from
// outside the body could hold for one request only.
func (a *Agent) merges(v *visit) bool {
	b := &a.policy.Load().spec.Routing.Batch
	if b.Enabled != nil && !*b.Enabled || v.r.URL.RawQuery != "" {
		return false
	}
	for _, h := range []string{"X-Data-Parallel-Rank", "Inference-Header-Content-Length"} {
		if v.r.Header.Get(h) != "" {
			return false
		}
	}
	return v.r.URL.Path == openai.PathEmbeddings || slices.Contains(b.InferModels, v.model)
}

// ride puts a request on its model's bus and waits for its share of an answer.
func (b *batcher) ride(w http.ResponseWriter, v *visit, part *batch.Part) {
	a := b.agent
	r := &rider{visit: v, part: part, done: make(chan *share, 1)}
	if !a.policy.Load().spec.Routing.Batch.AcrossTenants {
		r.tenant = v.hop.Tenant
	}
	if p, _ := route.PoolOf(a.policy.Load().spec, v.hop.Tenant, v.model, v.class); p != nil {
		r.tenant += "\x00" + p.Name // workers that are set apart are not shared by the way of a call
	}
	s := b.board(v.model)
	if s == nil {
		a.serve(w, v)
		return
	}
	got, refusal := s.ride(r)
	b.alight(s)
	switch {
	case v.r.Context().Err() != nil:
	case refusal != nil:
		a.refuse(w, v, refusal, false)
	case got == nil:
		a.serve(w, v)
	default:
		got.write(w, v)
	}
}

// board finds a model's bus; nil when there is nobody to serve it.
func (b *batcher) board(model string) *bus {
	width := b.agent.floor.ready(model)
	b.mu.Lock()
	defer b.mu.Unlock()
	if width == 0 || b.shut {
		return nil
	}
	s := b.buses[model]
	if s == nil {
		s = newBus(b, model)
		b.buses[model] = s
		b.agent.wg.Go(s.run)
	}
	s.riders++
	return s
}

func (b *batcher) alight(s *bus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.riders--
}

// retire takes a bus off the road unless somebody is about to ride.
func (b *batcher) retire(s *bus) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.riders > 0 {
		return false
	}
	delete(b.buses, s.model)
	return true
}

// close lets nobody board any more.
func (b *batcher) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shut = true
}

// ready counts the workers that may be chosen for a model.
func (f *floor) ready(model string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.pools[model]; p != nil {
		for i := range p.view.Workers {
			if p.view.Workers[i].Down == "" {
				n++
			}
		}
	}
	return n
}

// acked books a ticket whose request travels under another's.
func (f *floor) acked(t relay.Ticket) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ack(t)
}

// batching is how the spec wants requests merged.
func (o *orders) batching() batch.Config {
	b := &o.spec.Routing.Batch
	return batch.Config{MaxSize: b.MaxSize, MaxBytes: b.MaxBytes, MaxDelay: time.Duration(b.MaxDelay), Preferred: b.PreferredSizes}
}
