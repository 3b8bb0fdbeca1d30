package consensus

import (
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// fsm passes raft's entries to applyEntry and publishes the resulting state, once per batch.
type fsm struct {
	checks  stateChecks
	log     *slog.Logger
	applied *appliedState

	commandCache commandCache

	bytesSinceSnapshot atomic.Int64  // bytes of commands applied since the last snapshot
	configurationIndex atomic.Uint64 // of the last membership change since the start
}

var _ raft.BatchingFSM = (*fsm)(nil)

func newFSM(c stateChecks, log *slog.Logger) *fsm {
	return &fsm{checks: c, log: log, applied: newAppliedState()}
}

// Apply is ApplyBatch for one entry.
func (f *fsm) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch returns a commandResult for each command, and nil for other entries.
func (f *fsm) ApplyBatch(logs []*raft.Log) []any {
	answers := make([]any, len(logs))
	s := f.applied.State()
	for i, l := range logs {
		if l.Type == raft.LogConfiguration {
			f.configurationIndex.Store(l.Index)
		}
		if l.Type != raft.LogCommand {
			continue
		}
		f.bytesSinceSnapshot.Add(int64(len(l.Data)))
		var r commandResult
		s, r = applyEntry(s, logEntry{index: l.Index, term: l.Term, data: l.Data, cache: &f.commandCache}, f.checks)
		if r.Code == codeRefused {
			f.log.Warn("entry refused by the state's rules", "index", l.Index, "reason", r.Message)
		}
		answers[i] = r
	}
	f.applied.publishState(s)
	return answers
}

// Snapshot returns the immutable state. Persist encodes it later, without blocking Apply.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	f.bytesSinceSnapshot.Store(0)
	return fsmSnapshot{f.applied.State()}, nil
}

// Restore replaces the state with that of a snapshot. An incomplete snapshot changes nothing.
func (f *fsm) Restore(r io.ReadCloser) error {
	defer r.Close()
	s, err := decodeState(r)
	if err != nil {
		return err
	}
	if old := f.applied.State(); old.Index > 0 && old.Generation != s.Generation {
		f.log.Warn("a new generation of the cluster began: its state was restored, and gateways follow it even from a higher log index",
			"generation", s.Generation, "index", s.Index, "generation_before", old.Generation, "index_before", old.Index)
	}
	f.applied.publishState(s)
	return nil
}

type fsmSnapshot struct{ state *State }

// Persist writes the state; raft discards the sink on an error.
func (s fsmSnapshot) Persist(sink raft.SnapshotSink) error {
	b, err := encodeState(s.state)
	if err == nil {
		_, err = sink.Write(b)
	}
	if err != nil {
		_ = sink.Cancel() // the error of the write is the one to return
		return fmt.Errorf("writing snapshot: %w", err)
	}
	return sink.Close()
}

// Release does nothing.
func (fsmSnapshot) Release() {}
