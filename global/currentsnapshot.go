package global

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
)

// currentSnapshot is the snapshot that this node answers from; nil until there is a spec.
type currentSnapshot struct {
	atomic.Pointer[nodeSnapshot]
	rebuild chan struct{} // wakes the snapshotBuilder
}

func (s *currentSnapshot) requireSnapshot() (*nodeSnapshot, error) {
	if v := s.Load(); v != nil {
		return v, nil
	}
	return nil, admin.UnavailableError("no spec is in force yet", "spillway apply -f spec.yaml")
}

// awaitSnapshot waits up to adminWaitTimeout until this node's snapshot shows an agreed change.
func (s *currentSnapshot) awaitSnapshot(ctx context.Context, shown func(*nodeSnapshot) bool) {
	ctx, cancel := context.WithTimeout(ctx, adminWaitTimeout)
	defer cancel()
	for {
		if v := s.Load(); v != nil && shown(v) {
			return
		}
		wakeLoop(s.rebuild)
		if !sleepFor(ctx, 5*time.Millisecond) {
			return
		}
	}
}
