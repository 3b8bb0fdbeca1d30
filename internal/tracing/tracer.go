package tracing

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// Protocols of the export.
const (
	ProtocolGRPC = "grpc"
	ProtocolHTTP = "http"
)

// Config configures a Tracer.
type Config struct {
	// Endpoint is the receiver's URL, http://host:port or https://host:port. Empty: no traces.
	Endpoint string
	// Protocol is ProtocolGRPC or ProtocolHTTP.
	Protocol string
	// Sample is the share of requests without a parent whose traces are exported, from 0 to 1.
	Sample float64
	// Errors keeps the traces of failed requests that are not in the sample.
	Errors bool
	// FollowParent lets the parent of a request decide whether it is in the sample.
	FollowParent bool
	// HeaderFiles are headers of the export by name, each with the file of its value. CA is a file of the authorities of an
	// https endpoint; empty: the system's.
	HeaderFiles map[string]string
	CA          string
	// Tier, Node, Region, Zone and Version identify the process in traces.
	Tier, Node, Region, Zone, Version string
	// Log receives failures of the export. Nil discards.
	Log *slog.Logger
}

// Tracer begins traces and exports them. A nil *Tracer begins none.
type Tracer struct {
	cfg      Config
	log      *slog.Logger
	repeats  telemetry.LogThrottle
	exporter sdktrace.SpanExporter
	waiting  chan *RequestTrace

	exported, queueFull, exportFailed, overErrorRate atomic.Uint64
	// errorSecond is the present second of kept errors in its upper bits and their number in the lower 20.
	errorSecond atomic.Uint64
}

// New returns a Tracer; nil without an endpoint. Nothing is sent before Run.
func New(cfg Config) (*Tracer, error) {
	if cfg.Endpoint == "" {
		return nil, nil
	}
	exporter, err := newExporter(&cfg)
	if err != nil {
		return nil, fmt.Errorf("opening the export of traces: %w", err)
	}
	t := &Tracer{cfg: cfg, log: telemetry.LoggerOrDiscard(cfg.Log), exporter: exporter, waiting: make(chan *RequestTrace, maxWaitingTraces)}
	redirectLibraryErrors(t)
	return t, nil
}

// BeginHTTPRequest begins the trace of a request that has arrived with these headers.
func (t *Tracer) BeginHTTPRequest(h http.Header) *RequestTrace {
	if t == nil {
		return nil
	}
	return t.BeginRequest(forward.FirstValue(h, HeaderTraceParent), forward.FirstValue(h, HeaderTraceState))
}

// BeginRequest begins the trace of a request that has arrived with these values of the trace headers, which may be empty.
func (t *Tracer) BeginRequest(traceParent, traceState string) *RequestTrace {
	if t == nil {
		return nil
	}
	r := &RequestTrace{tracer: t}
	p, ok := TraceParent{}, false
	if traceParent != "" {
		p, ok = ParseTraceParent(traceParent)
	}
	if ok {
		r.own.Trace, r.parent = p.Trace, p.Span
		if len(traceState) <= maxTraceState {
			r.traceState = traceState
		}
	} else {
		binary.NativeEndian.PutUint64(r.own.Trace[:], rand.Uint64())
		binary.NativeEndian.PutUint64(r.own.Trace[8:], rand.Uint64()|1) // never all zero
	}
	if ok && t.cfg.FollowParent {
		r.own.Sampled = p.Sampled
	} else {
		r.own.Sampled = rand.Float64() < t.cfg.Sample
	}
	r.own.Span = newSpanID()
	return r
}

func newSpanID() (id SpanID) {
	binary.NativeEndian.PutUint64(id[:], rand.Uint64()|1) // never all zero
	return id
}

// mayKeepError reports whether one more trace may be kept because of a failure, at most maxErrorTraces per second.
func (t *Tracer) mayKeepError(now time.Time) bool {
	if !t.cfg.Errors {
		return false
	}
	const countBits = 20
	second := uint64(now.Unix()) << countBits
	for {
		was := t.errorSecond.Load()
		next := second + 1
		if was>>countBits == second>>countBits {
			if was&(1<<countBits-1) >= maxErrorTraces {
				t.overErrorRate.Add(1)
				return false
			}
			next = was + 1
		}
		if t.errorSecond.CompareAndSwap(was, next) {
			return true
		}
	}
}

// queueTrace queues a trace. It never blocks.
func (t *Tracer) queueTrace(r *RequestTrace) {
	select {
	case t.waiting <- r:
	default:
		t.queueFull.Add(1)
	}
}

// Run exports traces until ctx ends, and then those that wait.
func (t *Tracer) Run(ctx context.Context) {
	if t == nil {
		return
	}
	b := newSpanBuilder(&t.cfg)
	tick := time.NewTicker(batchInterval)
	defer tick.Stop()
	batch := make([]*RequestTrace, 0, maxBatchTraces)
	for {
		select {
		case r := <-t.waiting:
			if batch = append(batch, r); len(batch) < maxBatchTraces {
				continue
			}
		case <-tick.C:
		case <-ctx.Done():
			t.exportRest(b, batch)
			return
		}
		t.exportBatch(ctx, b, batch)
		batch = batch[:0]
	}
}

// exportRest exports what waits when the process stops, and closes the exporter.
func (t *Tracer) exportRest(b *spanBuilder, batch []*RequestTrace) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	for {
		select {
		case r := <-t.waiting:
			batch = append(batch, r)
			continue
		default:
		}
		break
	}
	t.exportBatch(ctx, b, batch)
	_ = t.exporter.Shutdown(ctx) // nothing is left to lose
}

// exportBatch builds the spans of traces and exports them. Traces of a failed export are dropped: their receiver was away for
// as long as exportTimeout, and newer ones wait.
func (t *Tracer) exportBatch(ctx context.Context, b *spanBuilder, batch []*RequestTrace) {
	if len(batch) == 0 {
		return
	}
	for _, r := range batch {
		b.addTrace(r)
	}
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	if err := t.exporter.ExportSpans(ctx, b.takeSpans()); err != nil {
		t.exportFailed.Add(uint64(len(batch)))
		t.logFailure(err)
		return
	}
	t.exported.Add(uint64(len(batch)))
}

func (t *Tracer) logFailure(err error) {
	if n, ok := t.repeats.AllowLine("export", "", time.Now()); ok {
		t.log.Warn("traces are lost: their receiver does not accept them; check tracing.endpoint and the receiver", "endpoint", t.cfg.Endpoint, telemetry.ErrorAttr(err), telemetry.KeySuppressed, n)
	}
}

// Collectors returns the metrics of the export. They exist without a Tracer too.
func (t *Tracer) Collectors(prefix string) []prometheus.Collector {
	counter := func(name, help string, labels prometheus.Labels, read func(*Tracer) uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: prefix + name, Help: help, ConstLabels: labels}, func() float64 {
			if t == nil {
				return 0
			}
			return float64(read(t))
		})
	}
	dropped := func(reason string, read func(*Tracer) uint64) prometheus.Collector {
		return counter("traces_dropped_total", "Traces of requests that were not exported, by reason: queue_full (too many waited), export_failed (the receiver did not accept them) or error_rate (more failed requests per second than are kept).",
			prometheus.Labels{"reason": reason}, read)
	}
	return []prometheus.Collector{
		counter("traces_exported_total", "Traces of requests that were exported over OTLP.", nil, func(t *Tracer) uint64 { return t.exported.Load() }),
		dropped("queue_full", func(t *Tracer) uint64 { return t.queueFull.Load() }),
		dropped("export_failed", func(t *Tracer) uint64 { return t.exportFailed.Load() }),
		dropped("error_rate", func(t *Tracer) uint64 { return t.overErrorRate.Load() }),
	}
}
