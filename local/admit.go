package local

import (
	"context"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/sched"
)

// acquireWorker assigns a worker to a request, now or once one has room. The second result, when not nil, refuses the
// request instead.
func (x *attemptRunner) acquireWorker(ctx context.Context, v *zoneRequest) (*sched.Attempt, *openai.Error) {
	if v.Query.Blocks == nil {
		v.setAffinity(x.policy.Load())
	}
	at, refusal, waits := x.scheduler.admitRequest(v, time.Now())
	if waits {
		x.scheduler.wakePump()
		v.reportQueued()
		at, refusal = x.scheduler.awaitPlacement(ctx, v)
	}
	if at != nil {
		v.progress.reportStarted()
	}
	return at, refusal
}
