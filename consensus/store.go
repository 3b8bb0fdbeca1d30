package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// maxReplayEntries bounds how many entries raft replays before it starts. It hands them, in batches of up to 64, to a
// queue of 128 batches that has no reader yet, and would block forever at the 129th.
const maxReplayEntries = 100 * 64

// appliedKey is the key, in the stable store, of the last index known to be applied.
const appliedKey = "SpillwayApplied"

// store is the log and the stable store in one bbolt file. It also keeps what raft needs to restore a restarted
// node's committed state before it finds a leader, and to repair a log that diverged from a snapshot (IsMonotonic).
type store struct {
	*raftboltdb.BoltStore
	stagedCommit atomic.Uint64
	baseIndex    uint64 // index of the newest snapshot at the node's start
	disk         raftDisk
}

var (
	_ raft.CommitTrackingLogStore = (*store)(nil)
	_ raft.MonotonicLogStore      = (*store)(nil)
)

// openStore opens dir's raft.db, and fails after a second if another process holds it.
func openStore(dir string) (*store, error) {
	path := filepath.Join(dir, logFile)
	opts := &bbolt.Options{Timeout: time.Second, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}
	b, err := openBolt(raftboltdb.Options{Path: path, BoltOptions: opts})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("opening %s: another process holds it: stop that node, or give this one a directory of its own", path)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		return nil, ErrDamaged{What: "the log " + path, Err: err}
	case err != nil:
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	return &store{BoltStore: b}, nil
}

// IsMonotonic makes raft clear the log when a snapshot is ahead of it.
func (s *store) IsMonotonic() bool { return true }

// StageCommitIndex keeps i for the next StoreLogs.
func (s *store) StageCommitIndex(i uint64) error {
	s.stagedCommit.Store(i)
	return nil
}

// StoreLog is StoreLogs for one entry.
func (s *store) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs writes entries, each with the staged commit index and a checksum, in one transaction.
func (s *store) StoreLogs(logs []*raft.Log) error {
	sealed := make([]*raft.Log, len(logs))
	for i, l := range logs {
		c := *l
		c.Extensions = encodeExtension(&c, min(s.stagedCommit.Load(), c.Index))
		sealed[i] = &c
	}
	return s.disk.tryWrite(func() error { return s.BoltStore.StoreLogs(sealed) })
}

// GetLog reads an entry, and refuses one whose checksum does not match.
func (s *store) GetLog(i uint64, l *raft.Log) error {
	if err := s.BoltStore.GetLog(i, l); err != nil {
		return err
	}
	return verifyChecksum(l)
}

// DeleteRange drops entries.
func (s *store) DeleteRange(first, last uint64) error {
	return s.disk.tryWrite(func() error { return s.BoltStore.DeleteRange(first, last) })
}

// Set stores a value for raft; see writeUntilDone.
func (s *store) Set(k, v []byte) error {
	return s.disk.writeUntilDone(func() error { return s.BoltStore.Set(k, v) })
}

// SetUint64 stores a number for raft; see writeUntilDone.
func (s *store) SetUint64(k []byte, v uint64) error {
	return s.disk.writeUntilDone(func() error { return s.BoltStore.SetUint64(k, v) })
}

// markApplied records that everything up to i is applied, and so committed. Raft's own record is written with the
// next entry, which may come much later: this one covers the last writes before a quiet time.
func (s *store) markApplied(i uint64) error {
	if err := s.disk.tryWrite(func() error { return s.BoltStore.SetUint64([]byte(appliedKey), i) }); err != nil {
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
	known, err := s.recordedCommitIndex(last)
	if err != nil {
		return 0, err
	}
	return s.limitBeforeConfiguration(min(known, last, s.baseIndex+maxReplayEntries))
}

// lastReplayedIndex is the index of the last command that raft replays at its start, or 0 when it replays none. Raft queues
// the entries and applies them after its start.
func (s *store) lastReplayedIndex() (uint64, error) {
	limit, err := s.GetCommitIndex()
	if err != nil {
		return 0, err
	}
	first, err := s.FirstIndex()
	if err != nil {
		return 0, err
	}
	for i := limit; i >= max(first, s.baseIndex+1); i-- {
		var l raft.Log
		if err := s.GetLog(i, &l); err != nil {
			return 0, fmt.Errorf("reading entry %d: %w", i, err)
		}
		if l.Type == raft.LogCommand {
			return i, nil
		}
	}
	return 0, nil
}

// recordedCommitIndex is the greater of the two records of the commit index.
func (s *store) recordedCommitIndex(last uint64) (uint64, error) {
	known, err := s.GetUint64([]byte(appliedKey))
	if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return 0, err
	}
	var l raft.Log
	if err := s.GetLog(last, &l); err != nil && !errors.Is(err, raft.ErrLogNotFound) {
		return 0, err
	}
	if len(l.Extensions) >= 8 { // older releases wrote the index alone
		known = max(known, binary.BigEndian.Uint64(l.Extensions))
	}
	return known, nil
}

// limitBeforeConfiguration lowers limit to just before the first membership change after the snapshot. Raft reads
// membership only from the snapshot and from entries that it does not replay, and would lose a change that it
// replayed.
func (s *store) limitBeforeConfiguration(limit uint64) (uint64, error) {
	first, err := s.FirstIndex()
	if err != nil {
		return 0, err
	}
	for i := max(first, s.baseIndex+1); i <= limit; i++ {
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

// An entry on disk has two extensions: the commit index known when it was written, 8 bytes, and a CRC-32C of the
// entry, 4 bytes. bbolt has no checksums for its data, and a flipped bit would put an entry in force that was never
// agreed on.
const extensionSize = 8 + 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeExtension returns the extensions of an entry.
func encodeExtension(l *raft.Log, commit uint64) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, extensionSize), commit)
	return binary.BigEndian.AppendUint32(b, computeChecksum(l, b))
}

// verifyChecksum checks an entry that was read; entries of releases that wrote no checksum pass.
func verifyChecksum(l *raft.Log) error {
	if len(l.Extensions) != extensionSize {
		return nil
	}
	if computeChecksum(l, l.Extensions[:8]) != binary.BigEndian.Uint32(l.Extensions[8:]) {
		return fmt.Errorf("entry %d does not match its checksum", l.Index)
	}
	return nil
}

func computeChecksum(l *raft.Log, commit []byte) uint32 {
	head := binary.BigEndian.AppendUint64(make([]byte, 0, 25), l.Index)
	head = append(binary.BigEndian.AppendUint64(head, l.Term), byte(l.Type))
	sum := crc32.Update(0, castagnoli, append(head, commit...))
	return crc32.Update(sum, castagnoli, l.Data)
}

// openBolt opens the file after it has been read through, or returns the reason why it cannot be read. Opened for
// writing, bbolt scans for free pages in its own goroutine and panics there at an invalid page.
func openBolt(o raftboltdb.Options) (*raftboltdb.BoltStore, error) {
	if _, err := os.Stat(o.Path); err == nil {
		if err := readAllPages(o.Path); err != nil {
			return nil, err
		}
	}
	return raftboltdb.New(o)
}

// readAllPages reads every page that a bucket reaches. The file is mapped into memory: reading past a truncation
// faults.
func readAllPages(path string) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = ErrDamaged{What: "the log " + path, Err: errors.New(fmt.Sprint(p))}
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return err
	}
	sum := byte(0)
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(_, v []byte) error {
				for i := 0; i < len(v); i += 512 {
					sum += v[i]
				}
				return nil
			})
		})
	})
	return errors.Join(err, db.Close())
}
