package consensus

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

const (
	appliedMarkDelay = 250 * time.Millisecond // from the last entry applied to the record of its index

	snapshotLogBytes = 8 << 20 // of commands since the last snapshot: a restart reads them in well under a second
)

// stateFollower acts on each new state.
type stateFollower struct {
	log          *slog.Logger
	applied      *appliedState
	logBytes     *atomic.Int64 // of commands applied since the last snapshot
	storage      *raftStorage
	onApply      func(*State) // may be nil
	takeSnapshot func(ctx context.Context) error

	configurationIndex   *atomic.Uint64 // of the last membership change applied
	coveredConfiguration atomic.Uint64  // of the last one known to be in a snapshot

	snapshotting atomic.Bool // a snapshot is in progress
}

// followState calls onApply with new states, and records the applied index after a pause in the writes, until ctx
// ends.
func (f *stateFollower) followState(ctx context.Context) {
	var snapshots sync.WaitGroup
	defer snapshots.Wait()
	var published, marked uint64
	quiet := time.NewTimer(appliedMarkDelay)
	defer quiet.Stop()
	for {
		changed := f.applied.changeSignal()
		if s := f.applied.State(); s.Index != published {
			published = s.Index
			if f.onApply != nil {
				f.onApply(s)
			}
			quiet.Reset(appliedMarkDelay)
			if f.startSnapshot() {
				snapshots.Go(func() { f.snapshotState(ctx) })
			}
		}
		select {
		case <-changed:
		case <-quiet.C:
			marked = f.recordApplied(marked)
		case <-ctx.Done():
			return
		}
	}
}

// startSnapshot reports whether a snapshot is due and none is in progress: the log has grown by more bytes than a start
// should read, or the membership has changed. Raft itself counts entries, and one spec may be a thousand times larger
// than another. A restart replays only what precedes the first membership change after the snapshot (see
// limitBeforeConfiguration): without a snapshot, a node that restarts without a leader would answer from the state before
// the change until raft's own snapshot, which a quiet cluster takes after days.
func (f *stateFollower) startSnapshot() bool {
	if f.storage.file == nil {
		return false
	}
	due := f.logBytes.Load() >= snapshotLogBytes || f.configurationIndex.Load() > f.coveredConfiguration.Load()
	return due && f.snapshotting.CompareAndSwap(false, true)
}

func (f *stateFollower) snapshotState(ctx context.Context) {
	defer f.snapshotting.Store(false)
	covered := f.configurationIndex.Load()
	// Raft has a reason when it refuses; the next entry tries again.
	if err := f.takeSnapshot(ctx); err == nil || errors.Is(err, raft.ErrNothingNewToSnapshot) {
		f.coveredConfiguration.Store(covered)
	}
}

// recordApplied records the applied index if it changed since last, the one recorded before.
func (f *stateFollower) recordApplied(last uint64) uint64 {
	marked, err := f.storage.recordApplied(last, f.applied.State().Index)
	if err != nil {
		f.log.Error("recording the applied index failed", "error", err)
	}
	return marked
}
