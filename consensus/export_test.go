package consensus

import (
	"context"
	"runtime"
	"strings"
	"time"
)

// Kill ends the node as a crash would, as far as peers can see: no leadership is handed on, and nothing is recorded.
func (n *Node) Kill() {
	n.stopped.Store(true)
	n.disconnect()
	n.cancel()
	_ = n.shutRaft(context.Background())
	n.wg.Wait()
	_ = n.closeStore()
}

// Compact takes a snapshot and drops all but the last entry of the log.
func (n *Node) Compact() error {
	c := n.raft.ReloadableConfig()
	c.TrailingLogs = 1
	if err := n.raft.ReloadConfig(c); err != nil {
		return err
	}
	return n.raft.Snapshot().Error()
}

// FirstEntry is the index of the oldest entry in the log on disk.
func (n *Node) FirstEntry() (uint64, error) { return n.store.FirstIndex() }

// DecodeMembership is decodeMembership.
var DecodeMembership = decodeMembership

// BreakDisk has every write to the disk answered with err; nil mends it.
func (n *Node) BreakDisk(err error) {
	if err == nil {
		n.store.disk.fault.Store(nil)
		return
	}
	fault := func() error { return err }
	n.store.disk.fault.Store(&fault)
}

// FailedWrites counts what the disk did not take.
func (n *Node) FailedWrites() uint64 { return n.store.disk.failed.Load() }

// Unhear has a node believe that it last heard a member that much longer ago.
func (n *Node) Unhear(id string, by time.Duration) {
	n.heard.mu.Lock()
	defer n.heard.mu.Unlock()
	if at, ok := n.heard.at[id]; ok {
		n.heard.at[id] = at.Add(-by)
	}
}

// Inquire has a node ask the others at once whether it is a member.
func (n *Node) Inquire(ctx context.Context) { n.inquire(ctx) }

// KeepStrangers has a node wait that long for each handshake. It is for before Start.
func (n *Node) KeepStrangers(d time.Duration) { n.listen.handshakeTimeout = d }

// AgreedSilent is agreedSilent.
func (n *Node) AgreedSilent(ctx context.Context, id string, all []Standing) bool {
	return n.agreedSilent(ctx, id, all)
}

// BlockLog calls f before entries are written to the log, which Raft's own loop does at a leader, until BreakDisk(nil).
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
	n.store.disk.fault.Store(&fault)
}
