package local

import (
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
)

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
