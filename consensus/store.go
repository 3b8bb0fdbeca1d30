package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// maxReplay bounds how many entries raft replays before it starts: it hands them, in batches of up to 64, to a queue of
// 128 batches that nobody reads yet, and would wait for ever at the 129th.
const maxReplay = 100 * 64

// appliedKey names, in the stable store, the last index known to be applied.
const appliedKey = "SpillwayApplied"

// store is the log and the stable store in one bbolt file, with what raft needs to give a restarted node its committed
// state back before it finds a leader, and to heal a log that diverged from a snapshot (IsMonotonic).
type store struct {
	*raftboltdb.BoltStore
	staged atomic.Uint64
	base   uint64 // index of the newest snapshot when the node started
}

var (
	_ raft.CommitTrackingLogStore = (*store)(nil)
	_ raft.MonotonicLogStore      = (*store)(nil)
)

// openStore opens dir's raft.db, and fails after a second if another process holds it.
func openStore(dir string) (*store, error) {
	path := filepath.Join(dir, "raft.db")
	opts := &bbolt.Options{Timeout: time.Second, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}
	b, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: opts})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("opening %s: another process holds it: stop that node, or give this one a directory of its own", path)
	case err != nil:
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	return &store{BoltStore: b}, nil
}

// IsMonotonic makes raft clear the log when a snapshot overtakes it.
func (s *store) IsMonotonic() bool { return true }

// StageCommitIndex keeps i for the next StoreLogs.
func (s *store) StageCommitIndex(i uint64) error {
	s.staged.Store(i)
	return nil
}

// StoreLog is StoreLogs for one entry.
func (s *store) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs writes entries, and with the last of them, in one transaction, the staged commit index.
func (s *store) StoreLogs(logs []*raft.Log) error {
	if n := len(logs); n > 0 {
		last := *logs[n-1]
		last.Extensions = binary.BigEndian.AppendUint64(nil, min(s.staged.Load(), last.Index))
		logs = append(append(make([]*raft.Log, 0, n), logs[:n-1]...), &last)
	}
	return s.BoltStore.StoreLogs(logs)
}

// markApplied records that everything up to i is applied, and so committed. Raft's own record goes with the next entry,
// which may be long in coming: this one is for the last writes before a quiet time.
func (s *store) markApplied(i uint64) error {
	if err := s.SetUint64([]byte(appliedKey), i); err != nil {
		return fmt.Errorf("recording applied index: %w", err)
	}
	return nil
}

// GetCommitIndex is the greatest index known to be committed that raft may safely replay at start.
func (s *store) GetCommitIndex() (uint64, error) {
	last, err := s.LastIndex()
	if err != nil || last == 0 {
		return 0, err
	}
	known, err := s.recorded(last)
	if err != nil {
		return 0, err
	}
	return s.beforeConfiguration(min(known, last, s.base+maxReplay))
}

// recorded is the greater of the two records of the commit index.
func (s *store) recorded(last uint64) (uint64, error) {
	known, err := s.GetUint64([]byte(appliedKey))
	if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return 0, err
	}
	var l raft.Log
	if err := s.GetLog(last, &l); err != nil && !errors.Is(err, raft.ErrLogNotFound) {
		return 0, err
	}
	if len(l.Extensions) == 8 {
		known = max(known, binary.BigEndian.Uint64(l.Extensions))
	}
	return known, nil
}

// beforeConfiguration lowers limit to just before the first membership change after the snapshot: raft takes membership
// only from the snapshot and from entries that it does not replay, and would forget a change that it did replay.
func (s *store) beforeConfiguration(limit uint64) (uint64, error) {
	first, err := s.FirstIndex()
	if err != nil {
		return 0, err
	}
	for i := max(first, s.base+1); i <= limit; i++ {
		var l raft.Log
		if err := s.GetLog(i, &l); err != nil {
			return 0, fmt.Errorf("reading entry %d: %w", i, err)
		}
		if l.Type == raft.LogConfiguration {
			return i - 1, nil
		}
	}
	return limit, nil
}
