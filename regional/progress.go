package regional

import (
	"net/http"

	"github.com/spillway-lb/spillway/internal/relay"
)

// Sent implements relay.Progress.
func (p *passage) Sent() { p.delivered.Store(true) }

// Interim implements relay.Progress. A gateway that sent the request is told what the zone has told.
func (p *passage) Interim(h http.Header) {
	progress := relay.First(h, relay.HeaderProgress)
	switch progress {
	case relay.ProgressQueued:
		p.queued.Store(true)
	case relay.ProgressStarted:
		p.queued.Store(false)
	default:
		return
	}
	if p.above != nil && p.q.forwards(progress) {
		relay.WriteProgress(p.above, progress)
	}
}

// forwards reports whether progress is forwarded to the gateway that sent the request. Each step is forwarded once, in
// order: transports bound the interim answers of a request.
func (q *request) forwards(progress string) bool {
	if progress == q.progress || q.progress == relay.ProgressStarted || q.progress == "" && progress != relay.ProgressQueued {
		return false
	}
	q.progress = progress
	return true
}

// abandoned reports whether the client left after the whole request was sent and before any answer, while no queue held it:
// a worker had begun it, as far as this gateway knows.
func (p *passage) abandoned() bool {
	return p.res != nil && p.res.ClientGone && p.res.Status == 0 && p.delivered.Load() && !p.queued.Load() && !p.q.stream.joined
}
