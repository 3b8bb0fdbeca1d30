package consensus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
)

// EncodeArchive returns this node's state as a snapshot with its checksum. The archive contains the secrets of the
// state. Its holder can sign redirect tickets until the ticket keys are rotated out, and the DNS zone until the
// zone's key is rolled.
func (n *Node) EncodeArchive() ([]byte, error) { return encodeState(n.State()) }

// DecodeArchive decodes an archive and refuses a damaged one.
func DecodeArchive(archive []byte) (*State, error) { return decodeState(bytes.NewReader(archive)) }

// RestoreArchive replaces the spec and the drains in force with the archived ones. Only the leader can do this.
// Versions never go back: the restored spec gets the version after the greater of both, so versions and SOA serials
// only increase. A new generation starts, so that gateways follow even if they have seen a later log index than the
// archive's. The plan is not restored, because it was computed for other capacity. A staged spec is rolled back.
func (n *Node) RestoreArchive(ctx context.Context, archive []byte, by Attribution) (version uint64, err error) {
	old, err := DecodeArchive(archive)
	switch {
	case err != nil:
		return 0, ErrRefused{Reason: err.Error()}
	case old.SpecVersion == 0:
		return 0, ErrRefused{Reason: "the archive holds no spec: there is nothing to restore"}
	case !n.IsLeader():
		return 0, ErrNotLeader
	}
	// No command is proposed between reading the state and replacing it, and proposals under way are waited for.
	// Otherwise a committed command would be lost although its author got a success.
	n.restoreMu.Lock()
	version, err = n.replaceState(ctx, old, by)
	n.restoreMu.Unlock()
	if err != nil {
		return 0, err
	}
	// A separate entry, because from here the index of the state is past both histories.
	err = n.RecordAudit(ctx, by, "restore", fmt.Sprintf("spec %d as spec %d", old.SpecVersion, version))
	return version, err
}

// replaceState replaces the state in force with an archived one and returns the version of its spec.
func (n *Node) replaceState(ctx context.Context, old *State, by Attribution) (version uint64, err error) {
	if err := n.AwaitBarrier(ctx); err != nil {
		return 0, err
	}
	now, at := n.State(), time.Now().UTC().Round(0)
	if now.Signing != nil {
		if err := now.Signing.checkZone(callHoldTimes(n.cfg.HoldTimes, old.Spec)); err != nil {
			return 0, ErrRefused{Reason: err.Error()}
		}
	}
	next := old.mergeForRestore(now, by.Actor, at)
	next.Signing = next.Signing.extendHolds(callHoldTimes(n.cfg.HoldTimes, now.Spec), at)
	body, err := encodeState(next)
	if err != nil {
		return 0, err
	}
	return next.SpecVersion, n.restoreSnapshot(ctx, next, body)
}

// mergeForRestore returns the archived state, adjusted to follow the present state now.
func (s *State) mergeForRestore(now *State, actor string, at time.Time) *State {
	out := &State{
		Generation: nextGeneration(max(s.Generation, now.Generation), at),
		Index:      max(s.Index, now.Index) + 1, Term: max(s.Term, now.Term), SpecVersion: max(s.SpecVersion, now.SpecVersion) + 1,
		Spec: s.Spec, PlanEpoch: now.PlanEpoch, Plan: now.Plan, PlanTerm: now.PlanTerm, PlanOrigin: now.PlanOrigin, Drains: s.Drains,
		TicketKeys: now.TicketKeys, Audit: now.Audit,
	}
	if len(now.Audit) == 0 { // a new cluster continues the audit of the old one
		out.Audit = s.Audit
	}
	if out.Signing = now.Signing; out.Signing == nil { // the parent zone may still hold the DS of the archived key
		out.Signing = s.Signing
	}
	if len(out.TicketKeys) == 0 {
		out.TicketKeys = s.TicketKeys
	}
	restored := SpecEntry{Version: out.SpecVersion, Index: out.Index, Body: s.Spec, Actor: actor, At: at}
	out.SpecHistory = boundHistory(append([]SpecEntry{restored}, now.SpecHistory...))
	return out
}

// restoreSnapshot makes raft install the state on every node.
func (n *Node) restoreSnapshot(ctx context.Context, s *State, body []byte) error {
	meta := &raft.SnapshotMeta{Version: raft.SnapshotVersionMax, ID: "archive", Index: s.Index, Term: s.Term, Size: int64(len(body))}
	done := make(chan error, 1)
	// No timeout is given: raft applies it to the whole restore, and may report a restore that took longer as one
	// that never began. A node that is not the leader returns at once. The goroutine ends with raft at the latest.
	go func() { done <- n.raft.Restore(meta, bytes.NewReader(body), 0) }()
	select {
	case err := <-done:
		switch {
		case err == nil:
			return nil
		case n.State().Generation == s.Generation: // the lead was lost after this node had replaced its state
			return fmt.Errorf("restoring: %w (%w)", ErrUnknownOutcome, err)
		}
		return fmt.Errorf("restoring: %w", classifyRaftError(err))
	case <-ctx.Done():
		return fmt.Errorf("%w (%w)", ErrUnknownOutcome, ctx.Err())
	}
}

// recoveringFSM starts a new generation in the snapshot that a recovery writes, because entries that gateways have
// seen may be lost with the other nodes.
type recoveringFSM struct{ *fsm }

// Snapshot implements raft.FSM.
func (f *recoveringFSM) Snapshot() (raft.FSMSnapshot, error) {
	s := *f.state.Load()
	s.Generation = nextGeneration(s.Generation, time.Now())
	f.publishState(&s)
	return f.fsm.Snapshot()
}

// ErrNothingToRecover means that a directory holds no state of a cluster.
var ErrNothingToRecover = errors.New("the folder holds no Raft state")

// RecoverNode makes a stopped node the only voter of its cluster, with everything in its log, for the permanent loss
// of a majority. All other nodes must then be wiped and added again: two nodes that are recovered separately form two
// clusters. It returns the state that the node will start from. Entries that no majority had confirmed count as
// committed from here on. With parts set, damaged files are first moved away and the log is cut before the first
// damaged entry, which loses the entries after it.
func RecoverNode(c Config, parts bool) (*State, error) {
	c, err := c.prepareConfig()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(c.Dir, logFile)); c.Dir == "" || err != nil {
		return nil, fmt.Errorf("recovering %q: %w", c.Dir, ErrNothingToRecover)
	}
	n := &Node{cfg: c, id: c.ID, log: c.Log}
	log := hcLogger{logger: c.Log}
	if parts {
		if err := salvageStorage(c.Dir, log); err != nil {
			return nil, fmt.Errorf("recovering %s: %w", c.Dir, err)
		}
	}
	logs, stable, snaps, err := n.openStores(log)
	if err != nil {
		return nil, err
	}
	defer n.store.Close()
	if err := verifyStorage(c.Dir, snaps, n.store); err != nil {
		return nil, fmt.Errorf("recovering %s: %w", c.Dir, err)
	}
	had, err := raft.HasExistingState(logs, stable, snaps)
	switch {
	case err != nil:
		return nil, fmt.Errorf("recovering %s: %w", c.Dir, err)
	case !had:
		return nil, fmt.Errorf("recovering %s: %w", c.Dir, ErrNothingToRecover)
	}
	addr := raft.ServerAddress(peerAddr(c.Peers, c.ID))
	if addr == "" {
		addr = raft.ServerAddress(c.Advertise)
	}
	if addr == "" {
		return nil, fmt.Errorf("recovering %s: raft.peers does not list this node, %s: list it with its own address", c.Dir, c.ID)
	}
	_, transport := raft.NewInmemTransport(addr)
	defer transport.Close()
	alone := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(c.ID), Address: addr}}}
	state := newFSM(stateChecks{spec: c.CheckSpec, plan: c.CheckPlan, holdTimes: c.HoldTimes}, c.Log)
	if err := raft.RecoverCluster(c.raftConfig(false, log), &recoveringFSM{state}, logs, stable, snaps, transport, alone); err != nil {
		return nil, fmt.Errorf("recovering %s: %w", c.Dir, err)
	}
	return state.state.Load(), nil
}
