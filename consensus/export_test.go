package consensus

import (
	"context"
	"runtime"
	"strings"
	"time"
)

// Kill ends the node like a crash, as far as peers can see: leadership is not transferred and nothing is recorded.
func (n *Node) Kill() {
	n.stopped.Store(true)
	n.closeConnections()
	n.cancel()
	n.drainRaftCalls(context.Background())
	_ = n.shutdownRaft(context.Background())
	n.wg.Wait()
	_ = n.closeStorage()
}

// CompactLog takes a snapshot and drops all but the last entry of the log.
func (n *Node) CompactLog() error {
	c := n.raft.ReloadableConfig()
	c.TrailingLogs = 1
	if err := n.raft.ReloadConfig(c); err != nil {
		return err
	}
	return n.raft.Snapshot().Error()
}

// FirstLogIndex is the index of the oldest entry in the log on disk.
func (n *Node) FirstLogIndex() (uint64, error) { return n.storage.file.FirstIndex() }

// DecodeMembership is decodeMembership.
var DecodeMembership = decodeMembership

// SleepFor is sleepFor.
var SleepFor = sleepFor

// RunAutopilotOnce makes the autopilot decide at once instead of at its next interval.
func (n *Node) RunAutopilotOnce(ctx context.Context) {
	n.autopilot.runAutopilotOnce(ctx, map[string]time.Time{})
}

// FailDisk makes every write to the disk fail with err; nil ends the failure.
func (n *Node) FailDisk(err error) {
	if err == nil {
		n.storage.file.disk.testFault.Store(nil)
		return
	}
	fault := func() error { return err }
	n.storage.file.disk.testFault.Store(&fault)
}

// FailedWrites counts the writes that the disk failed to take.
func (n *Node) FailedWrites() uint64 { return n.storage.file.disk.failedWrites.Load() }

// AgeContact makes a node's last contact with a member at least the given time old.
func (n *Node) AgeContact(id string, age time.Duration) {
	n.contacts.mu.Lock()
	defer n.contacts.mu.Unlock()
	if at, ok := n.contacts.lastContact[id]; ok && time.Since(at) < age {
		n.contacts.lastContact[id] = time.Now().Add(-age)
	}
}

// CheckMembership makes a node ask the others at once whether it is a member.
func (n *Node) CheckMembership(ctx context.Context) { n.watch.checkMembership(ctx) }

// SetHandshakeTimeout sets the time limit of each handshake. Call it before Start.
func (n *Node) SetHandshakeTimeout(d time.Duration) { n.listener.handshakeTimeout = d }

// ConfirmSilent is confirmSilent.
func (n *Node) ConfirmSilent(ctx context.Context, id string, all []MemberStatus) bool {
	return n.autopilot.confirmSilent(ctx, id, all)
}

// BlockLog calls f before entries are written to the log, until FailDisk(nil). On a leader this blocks Raft's own
// loop.
func (n *Node) BlockLog(f func()) {
	fault := func() error {
		callers := make([]uintptr, 8)
		frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
		for frame, more := frames.Next(); ; frame, more = frames.Next() {
			if strings.HasSuffix(frame.Function, ".(*store).StoreLogs") {
				f()
			}
			if !more {
				return nil
			}
		}
	}
	n.storage.file.disk.testFault.Store(&fault)
}
