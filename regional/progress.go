package regional

import (
	"net/http"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
)

// WroteRequest implements forward.ProgressObserver.
func (p *gatewayAttempt) WroteRequest() { p.requestSent.Store(true) }

// GotInterim implements forward.ProgressObserver. The zone's report is forwarded to the gateway that spilled the
// request.
func (p *gatewayAttempt) GotInterim(h http.Header) {
	progress := forward.FirstValue(h, forward.HeaderProgress)
	switch progress {
	case forward.ProgressQueued:
		p.queuedBelow.Store(true)
	case forward.ProgressStarted:
		p.queuedBelow.Store(false)
	default:
		return
	}
	if p.senderWriter != nil && p.q.advanceProgress(progress) {
		forward.WriteProgress(p.senderWriter, progress)
	}
}

// isAbandoned reports whether the client disconnected after the whole request was sent and before any response,
// while no queue held it. As far as this gateway can tell, a worker had started the request.
//
// For a gRPC call the first message counts as the request. The end by its own deadline counts as a disconnect:
// client and zone use the same deadline, and which of them ends the call first is chance. A WebSocket never
// counts, because nothing is sent to the worker before it answers the upgrade.
func (p *gatewayAttempt) isAbandoned() bool {
	if p.result == nil || p.result.Started || !p.requestSent.Load() || p.queuedBelow.Load() || p.q.resumption.continuing {
		return false
	}
	switch p.q.kind {
	case forward.GRPC:
		return (p.result.ClientGone || p.result.DeadlinePassed) && !p.result.NotStarted
	case forward.WebSocket:
		return false
	}
	return p.result.ClientGone && p.result.Status == 0
}
