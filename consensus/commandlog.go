package consensus

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const enqueueTimeout = 2 * time.Second

// commandLog writes commands to the log, on the leader.
type commandLog struct {
	raft interface {
		Apply(cmd []byte, timeout time.Duration) raft.ApplyFuture
		Barrier(timeout time.Duration) raft.Future
		CurrentTerm() uint64
	}
	calls     *raftCalls
	fsm       *fsm
	onCommit  func(took time.Duration) // may be nil
	committed chan struct{}            // signals a commit on this node to be announced

	restoreMu sync.RWMutex // read-locked while a command is proposed here, so that a restore overwrites none
}

// applyCommand proposes a command and returns its result. The checks run first, so that a command that would be
// refused stays out of the log.
func (l *commandLog) applyCommand(ctx context.Context, data []byte) (commandResult, error) {
	l.restoreMu.RLock()
	defer l.restoreMu.RUnlock()
	data, r, ok := l.precheckCommand(data)
	if !ok {
		return r, nil
	}
	begun := time.Now()
	var f raft.ApplyFuture
	if err := l.calls.awaitFuture(ctx, func() raft.Future { f = l.raft.Apply(data, enqueueTimeout); return f }); err != nil {
		return commandResult{}, err
	}
	if l.onCommit != nil {
		l.onCommit(time.Since(begun))
	}
	if r, ok = f.Response().(commandResult); !ok {
		return commandResult{}, fmt.Errorf("applying: %w", ErrUnknownOutcome)
	}
	select {
	case l.committed <- struct{}{}:
	default: // an announcement is due already, and will cover this one
	}
	return r, nil
}

// precheckCommand checks a command against the state applied here, and caches the decoded form of one that it marks.
func (l *commandLog) precheckCommand(data []byte) ([]byte, commandResult, bool) {
	p := precheckCommand(l.fsm.applied.State(), l.raft.CurrentTerm(), data, l.fsm.checks)
	if p.marked {
		l.fsm.commandCache.addCommand(p.data, p.command)
	}
	return p.data, p.result, p.ok
}

// awaitBarrier returns when this node, which must be the leader, has applied everything committed before the call.
func (l *commandLog) awaitBarrier(ctx context.Context) error {
	if err := l.commitBarrier(ctx); err != nil {
		return fmt.Errorf("waiting for the log: %w", err)
	}
	return nil
}

// readIndex returns the read index on the leader: the index of its state after an entry of its own, proposed after
// the call, is committed and applied. Raft's VerifyLeader would save the entry but is not sufficient: it counts
// answers to requests sent before the call, and a leader that was paused finds such answers waiting.
func (l *commandLog) readIndex(ctx context.Context) (commandResult, error) {
	if err := l.commitBarrier(ctx); err != nil {
		return commandResult{}, err
	}
	return commandResult{Code: codeOK, Index: l.fsm.applied.State().Index}, nil
}

// commitBarrier returns when an entry with no content, proposed after the call, is committed and applied.
func (l *commandLog) commitBarrier(ctx context.Context) error {
	return l.calls.awaitFuture(ctx, func() raft.Future { return l.raft.Barrier(enqueueTimeout) })
}

// whileNoProposal calls f when no proposal is under way here, and keeps new ones waiting until f returns.
func (l *commandLog) whileNoProposal(f func()) {
	l.restoreMu.Lock()
	defer l.restoreMu.Unlock()
	f()
}

// announceCommits informs the followers at once of a commit on this node. Raft does so with the next entry, or when
// CommitTimeout has passed without one. A barrier is such an entry, with no content. Nothing depends on its answer, so
// the code does not wait for it.
func (l *commandLog) announceCommits(ctx context.Context) {
	for {
		select {
		case <-l.committed:
			l.raft.Barrier(enqueueTimeout) // a former leader has nothing to announce
		case <-ctx.Done():
			return
		}
	}
}

// commandCache keeps the decoded form of the last commands that this node proposed. A leader decodes each command
// twice, before it proposes it and when it applies it. Decoding a plan takes a third of a millisecond of a core that
// also answers DNS queries.
type commandCache struct {
	mu       sync.Mutex
	recent   [2]cachedCommand
	nextSlot int
}

type cachedCommand struct {
	data    []byte
	command command
}

// addCommand stores the decoded form of data. Neither may be written to afterwards.
func (f *commandCache) addCommand(data []byte, c command) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recent[f.nextSlot] = cachedCommand{data, c}
	f.nextSlot = (f.nextSlot + 1) % len(f.recent)
}

// decodeCached is decodeCommand with the cache.
func (f *commandCache) decodeCached(data []byte) (command, error) {
	if f != nil {
		if c, ok := f.popCommand(data); ok {
			return c, nil
		}
	}
	return decodeCommand(data)
}

// popCommand returns a command and removes it from the cache: a spec can have megabytes, and no command is applied
// twice.
func (f *commandCache) popCommand(data []byte) (command, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.recent {
		if x := f.recent[i]; len(data) > 0 && bytes.Equal(x.data, data) {
			f.recent[i] = cachedCommand{}
			return x.command, true
		}
	}
	return command{}, false
}
