package consensus

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
)

const retainedSnapshots = 2 // snapshots

// raftStorage is where raft keeps its log, its term and vote, and its snapshots: in Config.Dir, or in memory without
// one.
type raftStorage struct {
	logs   raft.LogStore
	stable raft.StableStore
	snaps  raft.SnapshotStore
	file   *store // nil when everything is in memory
}

// openStores opens the files in c.Dir and creates them if they are missing. A write that raft must complete is retried
// until stopped is closed; nil: forever.
func (s *raftStorage) openStores(c Config, log hcLogger, stopped <-chan struct{}) error {
	if c.Dir == "" {
		mem := raft.NewInmemStore()
		s.logs, s.stable, s.snaps = mem, mem, raft.NewInmemSnapshotStore()
		return nil
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	snaps, err := raft.NewFileSnapshotStoreWithLogger(filepath.Clean(c.Dir), retainedSnapshots, log)
	if err != nil {
		return fmt.Errorf("opening snapshots in %s: %w", c.Dir, err)
	}
	// Snapshots hold the secrets of the state, and raft makes them readable to all users: dir may be an operator's
	// own.
	if err := os.Chmod(filepath.Join(c.Dir, snapshotDir), 0o700); err != nil {
		return fmt.Errorf("restricting access to the snapshots in %s: %w", c.Dir, err)
	}
	file, err := openStore(c.Dir)
	if err != nil {
		return err
	}
	file.disk.log, file.disk.observe, file.disk.stopped = c.Log, c.OnDiskWrite, stopped
	s.logs, s.stable, s.snaps, s.file = file, file, snaps, file
	return nil
}

// recordApplied records the applied index now if it differs from last, the one recorded before, and returns the one
// recorded after the call.
func (s *raftStorage) recordApplied(last, now uint64) (uint64, error) {
	if s.file == nil || now == last {
		return last, nil
	}
	if err := s.file.markApplied(now); err != nil {
		return last, err
	}
	return now, nil
}

// failedWrites counts the writes that the disk failed to take.
func (s *raftStorage) failedWrites() uint64 {
	if s.file == nil {
		return 0
	}
	return s.file.disk.failedWrites.Load()
}

// isFailing reports whether the last write to disk failed.
func (s *raftStorage) isFailing() bool { return s.file != nil && s.file.disk.lastFailed.Load() }

func (s *raftStorage) closeStores() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
