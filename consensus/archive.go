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

// Archive is this node's state in the form of a snapshot, with its checksum. It holds the secrets of the state: whoever
// has it can sign redirect tickets until the keys have been rotated out, and the zone until its key has been rolled.
func (n *Node) Archive() ([]byte, error) { return encodeState(n.State()) }

// Contents says what an archive holds, and refuses one that is damaged.
func Contents(archive []byte) (*State, error) { return decodeState(bytes.NewReader(archive)) }

// RestoreArchive puts an archived spec and its drains back in force in place of what is agreed now. Only the leader can.
// Versions do not go back: the restored spec takes the version after the greater of both, so that whoever compares versions
// or SOA serials sees a step forward. A new generation begins, so that gateways follow also when they have seen a later log
// index than the archive's. The plan is not restored: it was made for other capacity; a spec on trial is taken
// back.
func (n *Node) RestoreArchive(ctx context.Context, archive []byte, by By) (version uint64, err error) {
	old, err := Contents(archive)
	switch {
	case err != nil:
		return 0, ErrRefused{Reason: err.Error()}
	case old.SpecVersion == 0:
		return 0, ErrRefused{Reason: "the archive holds no spec: there is nothing to restore"}
	case !n.IsLeader():
		return 0, ErrNotLeader
	}
	// A command that was agreed between the look at the state and its replacement would be lost with its author told that
	// it stands: none is proposed meanwhile, and those under way are waited for.
	n.restoring.Lock()
	version, err = n.replace(ctx, old, by)
	n.restoring.Unlock()
	if err != nil {
		return 0, err
	}
	// An entry of its own: the state's index is past both histories from here.
	err = n.Note(ctx, by, "restore", fmt.Sprintf("spec %d as spec %d", old.SpecVersion, version))
	return version, err
}

// replace puts an archived state in the place of the one in force, and returns the version of its spec.
func (n *Node) replace(ctx context.Context, old *State, by By) (version uint64, err error) {
	if err := n.Barrier(ctx); err != nil {
		return 0, err
	}
	now, at := n.State(), time.Now().UTC().Round(0)
	if now.Signing != nil {
		if err := now.Signing.checkZone(held(n.cfg.Holds, old.Spec)); err != nil {
			return 0, ErrRefused{Reason: err.Error()}
		}
	}
	next := old.raised(now, by.Actor, at)
	next.Signing = next.Signing.outlive(held(n.cfg.Holds, now.Spec), at)
	body, err := encodeState(next)
	if err != nil {
		return 0, err
	}
	return next.SpecVersion, n.restoreUser(ctx, next, body)
}

// raised is an archived state as it may follow on what is agreed now.
func (s *State) raised(now *State, actor string, at time.Time) *State {
	out := &State{
		Generation: nextGeneration(max(s.Generation, now.Generation), at),
		Index:      max(s.Index, now.Index) + 1, Term: max(s.Term, now.Term), SpecVersion: max(s.SpecVersion, now.SpecVersion) + 1,
		Spec: s.Spec, PlanEpoch: now.PlanEpoch, Plan: now.Plan, PlanTerm: now.PlanTerm, PlanOrigin: now.PlanOrigin, Drains: s.Drains,
		TicketKeys: now.TicketKeys, Audit: now.Audit,
	}
	if len(now.Audit) == 0 { // a new cluster goes on with the old one's audit
		out.Audit = s.Audit
	}
	if out.Signing = now.Signing; out.Signing == nil { // the parent may still have the DS of the archived key
		out.Signing = s.Signing
	}
	if len(out.TicketKeys) == 0 {
		out.TicketKeys = s.TicketKeys
	}
	restored := SpecEntry{Version: out.SpecVersion, Index: out.Index, Body: s.Spec, Actor: actor, At: at}
	out.SpecHistory = boundHistory(append([]SpecEntry{restored}, now.SpecHistory...))
	return out
}

// restoreUser has raft give every node the state.
func (n *Node) restoreUser(ctx context.Context, s *State, body []byte) error {
	meta := &raft.SnapshotMeta{Version: raft.SnapshotVersionMax, ID: "archive", Index: s.Index, Term: s.Term, Size: int64(len(body))}
	done := make(chan error, 1)
	go func() { done <- n.raft.Restore(meta, bytes.NewReader(body), enqueueTimeout) }() // ends with raft at the latest
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("restoring: %w", sent(err))
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w (%w)", ErrUnknownOutcome, ctx.Err())
	}
}

// recoveringFSM begins a new generation in the snapshot that a recovery ends with: entries that gateways have seen may be
// lost with the other nodes.
type recoveringFSM struct{ *fsm }

// Snapshot implements raft.FSM.
func (f *recoveringFSM) Snapshot() (raft.FSMSnapshot, error) {
	s := *f.state.Load()
	s.Generation = nextGeneration(s.Generation, time.Now())
	f.publish(&s)
	return f.fsm.Snapshot()
}

// ErrNothingToRecover means that a folder holds no state of a cluster.
var ErrNothingToRecover = errors.New("the folder holds no Raft state")

// Recover makes a stopped node the only voter of its cluster, with everything that its log holds, for when a majority
// is gone for good. Every other node must then be wiped and added anew: two nodes recovered apart are two clusters. It
// returns the state that the node will start from. Entries that no majority had confirmed count as agreed from here on.
// With parts, what is damaged is put aside first and the log cut before it, which loses what came after.
func Recover(c Config, parts bool) (*State, error) {
	c, err := c.prepared()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(c.Dir, logFile)); c.Dir == "" || err != nil {
		return nil, fmt.Errorf("recovering %q: %w", c.Dir, ErrNothingToRecover)
	}
	n := &Node{cfg: c, id: c.ID, log: c.Log}
	log := hcLogger{to: c.Log}
	if parts {
		if err := salvage(c.Dir, log); err != nil {
			return nil, fmt.Errorf("recovering %s: %w", c.Dir, err)
		}
	}
	logs, stable, snaps, err := n.stores(log)
	if err != nil {
		return nil, err
	}
	defer n.store.Close()
	if err := intact(c.Dir, snaps, n.store); err != nil {
		return nil, fmt.Errorf("recovering %s: %w", c.Dir, err)
	}
	had, err := raft.HasExistingState(logs, stable, snaps)
	switch {
	case err != nil:
		return nil, fmt.Errorf("recovering %s: %w", c.Dir, err)
	case !had:
		return nil, fmt.Errorf("recovering %s: %w", c.Dir, ErrNothingToRecover)
	}
	addr := raft.ServerAddress(addressIn(c.Peers, c.ID))
	if addr == "" {
		addr = raft.ServerAddress(c.Advertise)
	}
	if addr == "" {
		return nil, fmt.Errorf("recovering %s: raft.peers does not list this node, %s: list it with its own address", c.Dir, c.ID)
	}
	_, transport := raft.NewInmemTransport(addr)
	defer transport.Close()
	alone := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(c.ID), Address: addr}}}
	state := newFSM(checks{spec: c.CheckSpec, plan: c.CheckPlan, holds: c.Holds}, c.Log)
	if err := raft.RecoverCluster(c.raftConfig(false, log), &recoveringFSM{state}, logs, stable, snaps, transport, alone); err != nil {
		return nil, fmt.Errorf("recovering %s: %w", c.Dir, err)
	}
	return state.state.Load(), nil
}
