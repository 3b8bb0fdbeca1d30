package local

import (
	"net/http"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/httpedge/http1"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/tracing"
	"github.com/spillway-lb/spillway/local/sched"
)

// zoneRequest is one request from its arrival to the last byte of its answer: what the scheduler sees of it, and what
// belongs to its HTTP exchange.
type zoneRequest struct {
	sched.Request
	httpRequest  *http.Request
	bodyCharge   forward.BodyCharge
	askUsage     bool // usage of the stream is requested although the client did not ask for it
	hop          forward.Hop
	namedLimit   int  // output limit that the request names, in tokens; 0 when none
	imposedLimit int  // output limit set by Spillway instead, in tokens; 0 when none
	pinned       bool // the caller insists on the model
	resume       resumeState
	hedged       bool                  // a second, concurrent attempt may be made
	detachable   bool                  // the handler may return before the answer has ended
	progress     queueProgress         // what was reported to the gateway about its time in the queue
	replayBody   *forward.ReplayBody   // its body where that is streamed; nil otherwise
	forwardKind  forward.Kind          // how it is forwarded
	trace        *tracing.RequestTrace // nil: it is not traced

	loopRef           http1.LoopRef         // where it waits on a request loop; else zero
	admission         admission             // its first, where a request loop has made it; else empty
	fingerprintBuffer [1]uint64             // buffer for its own fingerprint
	waitResults       chan sched.WaitResult // one result for each wait
}

// newZoneRequest returns a request that arrives now.
func newZoneRequest(r *http.Request, shape openai.Shape) *zoneRequest {
	return &zoneRequest{httpRequest: r, Request: sched.Request{PathShape: shape, ArrivedAt: time.Now(), ExcludedWorkers: [2]int32{-1, -1}}}
}

// setHop sets what the gateway, or in a standalone zone the listener, says about a request.
func (v *zoneRequest) setHop(hop *forward.Hop) {
	v.hop, v.ID = *hop, hop.RequestID
	v.Tenant, v.Flow = hop.Tenant, hop.Flow
	v.Ticket = toLedgerAck(hop.Ticket)
}

func toLedgerAck(t forward.LedgerTicket) capacity.LedgerAck {
	return capacity.LedgerAck{Parent: t.Parent, Boot: t.Boot, Ticket: t.Number}
}

// releaseBody releases the body, once its answer has begun and cannot be continued by another worker. Of two concurrent attempts
// the other may still be reading it, so a hedged request keeps it.
func (v *zoneRequest) releaseBody() {
	if v.resume.splicer != nil || v.hedged {
		return
	}
	v.Body, v.Envelope.Prompt = nil, nil
	v.bodyCharge.ReleaseBytes()
}

// readDeadlines reads the deadline and the SLO of a request, from the gateway's remaining time and from the client's
// headers. The earlier deadline applies.
func (v *zoneRequest) readDeadlines(h http.Header) *openai.Error {
	t, e := forward.ReadSLO(h)
	if e != nil {
		return e
	}
	for _, w := range [...]time.Duration{v.hop.Deadline, t.Deadline} {
		if w > 0 && (v.Deadline.IsZero() || v.ArrivedAt.Add(w).Before(v.Deadline)) {
			v.Deadline = v.ArrivedAt.Add(w)
		}
	}
	v.SetSLO(t.TTFT, t.TPOT)
	return nil
}

// setAffinity sets the text by which the policy consistent_hash keeps requests together, where the spec takes it from a
// header, the session or the user.
func (v *zoneRequest) setAffinity(o *zonePolicy) {
	by := o.Spec.Routing.HashKey
	v.AffinityText = ""
	if name, ok := strings.CutPrefix(by, spec.HashKeyHeader); ok {
		v.AffinityText = v.httpRequest.Header.Get(name)
	} else if by != spec.HashKeyPrefix && by != spec.HashKeyTenant {
		if v.AffinityText = v.httpRequest.Header.Get(forward.HeaderClientSession); v.AffinityText == "" {
			v.AffinityText = v.Envelope.User
		}
	}
}

// reportAfter is how long a member of a merged call waits before it is reported as queued. Most calls begin sooner. A report
// costs a write here and a read at the gateway: with two requests in one call that is more than the request itself costs. The
// price is that a client that leaves sooner is charged for its prompt as if a worker had received it.
const reportAfter = 5 * time.Millisecond

// queueProgress reports to the gateway that a request waits in the queue, and that it has left the queue for a worker. The
// gateway charges a client that leaves before the first byte for its prompt only if a worker had received it. The zero value
// reports nothing.
type queueProgress struct {
	writer  http.ResponseWriter // nil without a gateway above
	started func()              // called instead for a merged request when a worker has received it; else nil
	queued  bool                // waiting was reported
	placed  bool                // a worker has received the request
}

// reportQueued reports that the request waits, unless that was reported or a worker has received it.
func (p *queueProgress) reportQueued() {
	if p.writer == nil || p.queued || p.placed {
		return
	}
	p.queued = true
	forward.WriteProgress(p.writer, forward.ProgressQueued)
}

// reportStarted reports that the request goes to a worker, where it was reported as queued.
func (p *queueProgress) reportStarted() {
	if p.placed {
		return
	}
	switch {
	case p.started != nil:
		p.placed = true
		p.started()
	case p.queued:
		p.placed = true
		forward.WriteProgress(p.writer, forward.ProgressStarted)
	}
}

// reportQueued reports that the request waits, unless a worker has received it before.
func (v *zoneRequest) reportQueued() {
	if !v.Continuing && v.ExcludedWorkers[0] < 0 {
		v.progress.reportQueued()
	}
}

// finishTrace ends the trace of a request. Further calls have no effect.
func (v *zoneRequest) finishTrace() {
	if v.trace == nil {
		return
	}
	v.trace.FinishRequest(&tracing.RequestRecord{
		RequestID: v.hop.RequestID, Operation: tracing.OperationOf(v.PathShape), Method: v.httpRequest.Method, Path: v.httpRequest.URL.Path, Tenant: v.Tenant, Class: v.Class.String(),
		Model: v.Envelope.Model, ServedModel: v.Model, Stream: v.Envelope.Stream, MaxTokens: v.Envelope.MaxTokens, Arrived: v.ArrivedAt, Ended: time.Now(),
	})
}

// refuseTrace ends the trace of a request that is refused.
func (v *zoneRequest) refuseTrace(e *openai.Error) {
	v.trace.SetRefusal(e)
	v.finishTrace()
}
