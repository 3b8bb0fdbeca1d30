package consensus

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"
)

// archiver writes the state to an archive and replaces the state by one.
type archiver struct {
	raft interface {
		Restore(meta *raft.SnapshotMeta, r io.Reader, timeout time.Duration) error
	}
	calls           *raftCalls
	applied         *appliedState
	holdTimes       func(spec []byte) HoldTimes
	isLeader        func() bool
	awaitBarrier    func(ctx context.Context) error
	whileNoProposal func(f func())
	recordAudit     func(ctx context.Context, by Attribution, action, subject string) error
}

// EncodeArchive returns this node's state as a snapshot with its checksum. The archive contains the secrets of the
// state. Its holder can sign redirect tickets until the ticket keys are rotated out, and the DNS zone until the
// zone's key is rolled.
func (a *archiver) EncodeArchive() ([]byte, error) { return encodeState(a.applied.State()) }

// DecodeArchive decodes an archive and refuses a damaged one.
func DecodeArchive(archive []byte) (*State, error) { return decodeState(bytes.NewReader(archive)) }

// RestoreArchive replaces the spec and the drains in force with the archived ones. Only the leader can do this.
// Versions never go back: the restored spec gets the version after the greater of both, so versions and SOA serials
// only increase. A new generation starts, so that gateways follow even if they have seen a later log index than the
// archive's. The plan is not restored, because it was computed for other capacity. A staged spec is rolled back.
func (a *archiver) RestoreArchive(ctx context.Context, archive []byte, by Attribution) (version uint64, err error) {
	old, err := DecodeArchive(archive)
	switch {
	case err != nil:
		return 0, ErrRefused{Reason: err.Error()}
	case old.SpecVersion == 0:
		return 0, ErrRefused{Reason: "the archive holds no spec: there is nothing to restore"}
	case !a.isLeader():
		return 0, ErrNotLeader
	}
	// No command is proposed between reading the state and replacing it, and proposals under way are waited for.
	// Otherwise a committed command would be lost although its author got a success.
	a.whileNoProposal(func() { version, err = a.replaceState(ctx, old, by) })
	if err != nil {
		return 0, err
	}
	// A separate entry, because from here the index of the state is past both histories.
	err = a.recordAudit(ctx, by, "restore", fmt.Sprintf("spec %d as spec %d", old.SpecVersion, version))
	return version, err
}

// replaceState replaces the state in force with an archived one and returns the version of its spec.
func (a *archiver) replaceState(ctx context.Context, old *State, by Attribution) (version uint64, err error) {
	if err := a.awaitBarrier(ctx); err != nil {
		return 0, err
	}
	now, at := a.applied.State(), time.Now().UTC().Round(0)
	if now.Signing != nil {
		if err := now.Signing.checkZone(callHoldTimes(a.holdTimes, old.Spec)); err != nil {
			return 0, ErrRefused{Reason: err.Error()}
		}
	}
	next := old.mergeForRestore(now, by.Actor, at)
	next.Signing = next.Signing.extendHolds(callHoldTimes(a.holdTimes, now.Spec), at)
	body, err := encodeState(next)
	if err != nil {
		return 0, err
	}
	return next.SpecVersion, a.restoreSnapshot(ctx, next, body)
}

// mergeForRestore returns the archived state, adjusted to follow the present state now.
func (s *State) mergeForRestore(now *State, actor string, at time.Time) *State {
	out := &State{
		Generation: nextGeneration(max(s.Generation, now.Generation), at),
		Index:      max(s.Index, now.Index) + 1, Term: max(s.Term, now.Term), SpecVersion: max(s.SpecVersion, now.SpecVersion) + 1,
		Spec: s.Spec, PlanEpoch: now.PlanEpoch, Plan: now.Plan, PlanTerm: now.PlanTerm, PlanOrigin: now.PlanOrigin, Drains: s.Drains,
		TicketKeys: now.TicketKeys, Audit: now.Audit, StopLever: now.StopLever, Switch: now.Switch,
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
func (a *archiver) restoreSnapshot(ctx context.Context, s *State, body []byte) error {
	meta := &raft.SnapshotMeta{Version: raft.SnapshotVersionMax, ID: "archive", Index: s.Index, Term: s.Term, Size: int64(len(body))}
	if !a.calls.beginCall() {
		return ErrStopped
	}
	done := make(chan error, 1)
	// No timeout is given: raft applies it to the whole restore, and may report a restore that took longer as one
	// that never began. A node that is not the leader returns at once.
	go func() {
		defer a.calls.endCall()
		done <- a.raft.Restore(meta, bytes.NewReader(body), 0)
	}()
	select {
	case err := <-done:
		switch {
		case err == nil:
			return nil
		case a.applied.State().Generation == s.Generation: // the lead was lost after this node had replaced its state
			return fmt.Errorf("restoring: %w (%w)", ErrUnknownOutcome, err)
		}
		return fmt.Errorf("restoring: %w", classifyRaftError(err))
	case <-ctx.Done():
		return fmt.Errorf("%w (%w)", ErrUnknownOutcome, ctx.Err())
	}
}
