package local

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/modelroute"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/batch"
)

// batchDispatchers holds one batch dispatcher for each model whose requests are merged. A dispatcher starts with the
// model's first such request.
type batchDispatchers struct {
	agent   *Agent
	mu      sync.Mutex
	byModel map[string]*batchDispatcher
	closed  bool

	callSize, waitSeconds *prometheus.HistogramVec
	calls, splits         *prometheus.CounterVec
	coalesced             *prometheus.CounterVec
	pending               *prometheus.GaugeVec
}

func newBatchDispatchers(a *Agent) *batchDispatchers {
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "spillway_local_batch_" + name, Help: help, Buckets: buckets}, []string{"model"})
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_local_batch_" + name, Help: help}, append([]string{"model"}, labels...))
	}
	b := &batchDispatchers{
		agent: a, byModel: map[string]*batchDispatcher{},
		callSize:    histogram("size", "Inputs or rows in one batched call of a worker.", []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 1024}),
		waitSeconds: histogram("delay_seconds", "Time that a request waited for others in its batch.", telemetry.WaitBuckets()),
		calls:       counter("calls_total", "Batched calls by the reason to send them at that time.", "reason"),
		splits:      counter("splits_total", "Batched calls whose requests were sent again individually, by cause: refused, or a response that did not match the batch.", "cause"),
		coalesced:   counter("shared_total", "Requests answered with the response to an identical request."),
		pending:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "spillway_local_batch_pending_requests", Help: "Requests that wait for their batch to be sent or answered."}, []string{"model"}),
	}
	a.cfg.Registry.MustRegister(b.callSize, b.waitSeconds, b.calls, b.splits, b.coalesced, b.pending)
	return b
}

// batchMember is one request that waits for its share of a merged call.
type batchMember struct {
	request       *zoneRequest
	part          *batch.RequestPart
	tenant        string // tenant whose requests may share the call
	joinedAt      time.Time
	response      chan *partResponse // buffered: takes one
	coalescedPart *coalescedPart     // owned by the dispatcher

	started chan struct{} // buffered: takes one; signals that a worker has the call
	above   queueProgress
}

// partResponse is one request's share of a call's answer. A nil *partResponse means that the request must be sent
// alone.
type partResponse struct {
	status int
	header http.Header // read-only: shared with other members
	body   batch.PartAnswer
}

// serveEmbeddings serves one request for embeddings.
func (q *requestHandler) serveEmbeddings(w http.ResponseWriter, r *http.Request) {
	v, refusal := q.readRequest(w, r, openai.ShapeEmbeddings)
	if refusal != nil {
		q.attempts.refuseUnreadRequest(w, refusal)
		return
	}
	defer v.bodyCharge.ReleaseBytes()
	defer v.finishTrace() // where it is merged; else it has ended with its attempts
	goes := v.buildForwardedBody()
	part, ok := batch.ReadEmbeddings(goes.Bytes())
	if ok && part.Items > 1 {
		v.LongestInputTokens = max(1, v.EstimatedTokens*part.Longest/part.Weight)
	}
	if !ok || !q.mayBatch(v) || q.scheduler.mustServeAlone(v) {
		q.attempts.serveRequest(w, v)
		return
	}
	q.dispatchers.serveBatched(w, v, part)
}

// mayBatch reports whether both the spec and the request allow sharing a call. A request that controls the engine
// outside its body (query string or header) cannot be merged, because that could apply to it only.
func (q *requestHandler) mayBatch(v *zoneRequest) bool {
	b := &q.policy.Load().Spec.Routing.Batch
	if b.Enabled != nil && !*b.Enabled || v.httpRequest.URL.RawQuery != "" {
		return false
	}
	for _, h := range []string{"X-Data-Parallel-Rank", "Inference-Header-Content-Length"} {
		if v.httpRequest.Header.Get(h) != "" {
			return false
		}
	}
	return v.httpRequest.URL.Path == openai.PathEmbeddings || slices.Contains(b.InferModels, v.Model)
}

// serveBatched adds a request to its model's dispatcher and waits for its share of an answer.
func (b *batchDispatchers) serveBatched(w http.ResponseWriter, v *zoneRequest, part *batch.RequestPart) {
	a := b.agent
	r := &batchMember{request: v, part: part, response: make(chan *partResponse, 1), started: make(chan struct{}, 1)}
	if !a.cfg.Plain {
		r.above.writer = w
	}
	charge := v.bodyCharge // a call copies the request and may still do so after its client has left, so the charge must not be released twice
	v.bodyCharge = forward.BodyCharge{}
	defer func() { charge.ReleaseBytes() }()
	alone := func() {
		v.progress, v.bodyCharge, charge = r.above, charge, forward.BodyCharge{}
		a.attempts.serveRequest(w, v)
	}
	if !a.policy.Load().Spec.Routing.Batch.AcrossTenants {
		r.tenant = v.Tenant
	}
	if p, _ := modelroute.FindPool(a.policy.Load().Spec, v.Tenant, v.Model, v.Class); p != nil {
		r.tenant += "\x00" + p.Name // calls are not shared across dedicated pools
	}
	s := b.joinDispatcher(v.Model)
	if s == nil {
		alone()
		return
	}
	got, refusal := s.awaitResponse(r)
	b.leaveDispatcher(s)
	switch {
	case v.httpRequest.Context().Err() != nil:
	case refusal != nil:
		a.attempts.refuseRequest(w, v, refusal, false)
	case got == nil:
		alone()
	default:
		got.writeTo(w, v)
	}
}

// joinDispatcher returns a model's dispatcher, starting it if needed; nil when no worker serves the model.
func (b *batchDispatchers) joinDispatcher(model string) *batchDispatcher {
	width := b.agent.scheduler.countReadyWorkers(model)
	b.mu.Lock()
	defer b.mu.Unlock()
	if width == 0 || b.closed {
		return nil
	}
	s := b.byModel[model]
	if s == nil {
		s = newBatchDispatcher(b, model)
		b.byModel[model] = s
		b.agent.wg.Go(s.runDispatcher)
	}
	s.memberCount++
	return s
}

func (b *batchDispatchers) leaveDispatcher(s *batchDispatcher) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.memberCount--
}

// retireDispatcher removes a dispatcher, unless a request is about to join it.
func (b *batchDispatchers) retireDispatcher(s *batchDispatcher) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.memberCount > 0 {
		return false
	}
	delete(b.byModel, s.model)
	return true
}

// close stops new requests from joining.
func (b *batchDispatchers) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}
