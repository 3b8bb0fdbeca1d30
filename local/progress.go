package local

import (
	"net/http"

	"github.com/spillway-lb/spillway/internal/relay"
)

// progress reports to the gateway that a request waits in the queue, and that it has left the queue for a worker. The
// gateway charges a client that leaves before the first byte for its prompt only if a worker had it. The zero value reports
// nothing.
type progress struct {
	w      http.ResponseWriter // nil where no gateway is above
	queued bool                // reported
	placed bool                // a worker has had the request
}

// reportQueued reports that the request waits, unless a worker has had it before.
func (v *visit) reportQueued() {
	p := &v.above
	if p.w == nil || p.queued || p.placed || v.stream.joined || v.excluded[0] >= 0 {
		return
	}
	p.queued = true
	relay.WriteProgress(p.w, relay.ProgressQueued)
}

// reportStarted reports that the request that waited goes to a worker.
func (v *visit) reportStarted() {
	p := &v.above
	if !p.queued || p.placed {
		return
	}
	p.placed = true
	relay.WriteProgress(p.w, relay.ProgressStarted)
}
