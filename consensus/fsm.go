package consensus

import (
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// fsm hands raft's entries to apply and publishes the state that comes out, one publication a batch.
type fsm struct {
	checks checks
	log    *slog.Logger
	state  atomic.Pointer[State] // one writer: raft's FSM goroutine

	foreseen foreseen

	since atomic.Int64 // bytes of commands applied since the last snapshot

	mu      sync.Mutex
	changed chan struct{} // closed when state was replaced, then replaced itself
}

var _ raft.BatchingFSM = (*fsm)(nil)

func newFSM(c checks, log *slog.Logger) *fsm {
	f := &fsm{checks: c, log: log, changed: make(chan struct{})}
	f.state.Store(&State{})
	return f
}

// Apply is ApplyBatch for one entry.
func (f *fsm) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch answers each command with a result, and other entries with nil.
func (f *fsm) ApplyBatch(logs []*raft.Log) []any {
	answers := make([]any, len(logs))
	s := f.state.Load()
	for i, l := range logs {
		if l.Type != raft.LogCommand {
			continue
		}
		f.since.Add(int64(len(l.Data)))
		var r result
		s, r = apply(s, entry{index: l.Index, term: l.Term, data: l.Data, read: &f.foreseen}, f.checks)
		if r.Code == codeRefused {
			f.log.Warn("entry refused by the state's rules", "index", l.Index, "reason", r.Message)
		}
		answers[i] = r
	}
	f.publish(s)
	return answers
}

// Snapshot takes the immutable state; encoding it is left to Persist, which does not hold up Apply.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	f.since.Store(0)
	return snapshot{f.state.Load()}, nil
}

// Restore replaces the state with a snapshot's, or leaves it alone when the snapshot is not whole.
func (f *fsm) Restore(r io.ReadCloser) error {
	defer r.Close()
	s, err := decodeState(r)
	if err != nil {
		return err
	}
	if old := f.state.Load(); old.Index > 0 && old.Generation != s.Generation {
		f.log.Warn("a new generation of the cluster began: its state was restored from an archive, and gateways follow it whatever log index they have seen",
			"generation", s.Generation, "index", s.Index, "generation_before", old.Generation, "index_before", old.Index)
	}
	f.publish(s)
	return nil
}

func (f *fsm) publish(s *State) {
	f.state.Store(s)
	f.mu.Lock()
	close(f.changed)
	f.changed = make(chan struct{})
	f.mu.Unlock()
}

// next is closed at the first publication after the call.
func (f *fsm) next() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

type snapshot struct{ state *State }

// Persist writes the state; raft discards the sink on an error.
func (s snapshot) Persist(sink raft.SnapshotSink) error {
	b, err := encodeState(s.state)
	if err == nil {
		_, err = sink.Write(b)
	}
	if err != nil {
		_ = sink.Cancel() // the write's error is the one to tell
		return fmt.Errorf("writing snapshot: %w", err)
	}
	return sink.Close()
}

// Release has nothing to let go of.
func (snapshot) Release() {}
