package global

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
)

// adminWaitTimeout bounds how long a call waits until this node's snapshot shows the change that the call made.
const adminWaitTimeout = 2 * time.Second

// specAdmin reads, applies and stages specs for the operator.
type specAdmin struct {
	name      string
	log       *slog.Logger
	node      *consensus.Node
	snapshot  *currentSnapshot
	demandLog *demandLog
}

func (s *Server) adminBackend() admin.Backend {
	return admin.Backend{
		Status: s.status.collectStatus, Explain: s.status.explainRequest, Trace: s.status.traceRequest, Spec: s.specs.describeSpec, Apply: s.specs.applySpec,
		Drain: s.drains.drainPath, Undrain: s.drains.undrainPath, Drains: s.drains.listDrains, Ready: s.checkReady,
		Members: s.members.listMembers, AddMember: s.members.addMember, RemoveMember: s.members.removeMember, TransferLeadership: s.members.transferLeadership,
		SpecNow: s.specs.readAgreedSpec, DrainsNow: s.drains.readAgreedDrains, Audit: s.members.listAuditRecords, Archive: s.members.archiveState, Restore: s.members.restoreState,
		Stage: s.specs.showRollout, EndStage: s.specs.endRollout,
		Plan: s.plans.showPlan, PlanDiff: s.plans.diffPlans, PlanHistory: s.plans.listPlanHistory,
		Switch: s.switches.showSwitch, ChangeSwitch: s.switches.changeSwitch,
		StopLever: s.safety.showStopLever, SetStopLever: s.safety.setStopLever,
		DNSSEC: s.dnssec.showDNSSEC, ChangeDNSSEC: s.dnssec.changeDNSSEC, RotateTickets: s.members.rotateTicketKeys, Uplinks: s.status.describeUplinks, TestNotifications: s.notifications.testNotifications, Basis: s.status.describeBasis,
		Tenants: s.status.listTenants,
	}
}

// checkReady returns nil once DNS queries are answered and requests redirected. A node that runs from its spec file
// has no ticket key and does not wait for one, because its DNS answers must continue.
func (s *Server) checkReady() error {
	v := s.snapshot.Load()
	switch {
	case v == nil:
		return errors.New("no spec is in force: run `spillway apply -f spec.yaml`")
	case v.source == agreedState && len(v.state.TicketKeys) == 0:
		return errors.New("no ticket key is committed yet, so requests cannot be redirected: the leader makes one within a second")
	case s.node != nil && s.node.DiskFailing():
		return errors.New("the Raft log cannot be written to disk: this node answers from its last state and does not take part in changes; free disk space, or replace the disk")
	}
	return nil
}

func (s *specAdmin) describeSpec(context.Context) (*admin.SpecAnswer, error) {
	v, err := s.snapshot.requireSnapshot()
	if err != nil {
		return nil, err
	}
	return &admin.SpecAnswer{Version: v.Version, Text: string(v.Text)}, nil
}

// applySpec puts a spec in force, or with DryRun reports what it would change and which clients would move. A spec
// without a base version is retried once after a conflict, because this node's state may have lagged behind.
func (s *specAdmin) applySpec(ctx context.Context, r admin.ApplyRequest, actor string) (out *admin.ApplyAnswer, err error) {
	err = retryAfterConflict(r.BasedOn, func() error {
		out, err = s.applySpecOnce(ctx, r, actor)
		return err
	}, func() error {
		st, err := s.node.ReadLinearizable(ctx)
		if err == nil {
			s.snapshot.awaitSnapshot(ctx, func(v *nodeSnapshot) bool { return v.Version >= st.SpecVersion })
		}
		return err
	})
	if err != nil {
		return out, toAdminError(err)
	}
	return out, nil
}

// retryAfterConflict repeats a write once after a conflict if the caller named no base version. catchUp brings this
// node's state up to date before the second attempt.
func retryAfterConflict(basedOn uint64, write, catchUp func() error) error {
	err := write()
	if basedOn != 0 || !errors.As(err, new(consensus.ErrConflict)) {
		return err
	}
	if err := catchUp(); err != nil {
		return err
	}
	return write()
}

func (s *specAdmin) applySpecOnce(ctx context.Context, r admin.ApplyRequest, actor string) (*admin.ApplyAnswer, error) {
	next, err := spec.Decode(cmp.Or(r.Name, "spec"), []byte(r.Text))
	if err == nil {
		err = checkSteerable(next)
	}
	if err != nil {
		return nil, admin.BadRequestError(err.Error(), "")
	}
	body := encodeSpec(next)
	if len(body) > consensus.MaxBody {
		return nil, admin.BadRequestError(fmt.Sprintf("the encoded spec has %d bytes, over the limit of %d", len(body), consensus.MaxBody), "remove entries that are not needed, or split the spec over several fleets")
	}
	version, err := s.resolveBaseVersion(ctx, r.BasedOn)
	if err != nil {
		return nil, err
	}
	v := s.snapshot.Load()
	trial, err := parseRollout(&r, v, next)
	if err != nil {
		return nil, err
	}
	out := &admin.ApplyAnswer{DryRun: r.DryRun, Changes: diffSpecs(v, next), Moves: []admin.Move{}}
	if v != nil {
		s.demandLog.addSample(v.CollectDemand(), time.Now())
		minutes := s.demandLog.newestMinutes(replayMinutesFor(r.DryRun))
		h, err := dryRunSpec(v, next, minutes)
		if err != nil {
			return nil, admin.BadRequestError(err.Error(), "")
		}
		if out.Moves = h.largestMoves(); r.DryRun {
			out.Replay = h.buildReplay(minutes)
		}
	}
	under := s.node.State().Rollout
	out.Stage = proposedRollout(trial, version)
	if out.Version = version; r.DryRun || v != nil && v.Version == version && len(out.Changes) == 0 && (under == nil || !r.Replace) {
		if !r.DryRun {
			out.Stage = nil
		}
		return out, nil // a version without changes would only hide the last version that changed something
	}
	if under != nil && !r.Replace {
		return nil, rolloutConflict(under)
	}
	return out, s.commitSpec(ctx, out, consensus.SpecChange{
		BasedOn: version, Body: body, By: consensus.Attribution{Actor: actor, Reason: r.Reason}, Detail: formatChanges(out.Changes), Rollout: trial, ReplaceRollout: r.Replace,
	})
}

// formatChanges returns a diff in the form that the audit stores.
func formatChanges(changes []admin.Change) string {
	var out strings.Builder
	for _, c := range changes {
		out.WriteString(spec.SpecChange(c).String() + "\n")
	}
	return out.String()
}

func diffSpecs(v *nodeSnapshot, next *spec.Spec) []admin.Change {
	out, old := []admin.Change{}, &spec.Spec{}
	if v != nil {
		old = v.Spec
	}
	for _, c := range spec.DiffSpecs(old, next) {
		out = append(out, admin.Change{Path: c.Path, From: c.From, To: c.To})
	}
	return out
}

// readAgreedSpec returns the spec with every write that completed on any node before the call. This node's answers
// may follow a moment later.
func (s *specAdmin) readAgreedSpec(ctx context.Context) (*admin.SpecAnswer, error) {
	st, err := s.node.ReadLinearizable(ctx)
	if err != nil {
		return nil, toAdminError(err)
	}
	if st.SpecVersion == 0 {
		return nil, admin.UnavailableError("no spec is committed yet", "spillway apply -f spec.yaml")
	}
	return &admin.SpecAnswer{Version: st.SpecVersion, Text: string(st.Spec)}, nil
}

// resolveBaseVersion returns the spec version that an apply replaces, or a conflict with the version that it is based
// on. Versions only grow: a version greater than this node's comes from a node that is ahead, and the leader resolves
// it.
func (s *specAdmin) resolveBaseVersion(ctx context.Context, basedOn uint64) (uint64, error) {
	version := s.node.State().SpecVersion
	if basedOn > version {
		st, err := s.node.ReadLinearizable(ctx)
		if err != nil {
			return 0, toAdminError(err)
		}
		version = st.SpecVersion
		s.snapshot.awaitSnapshot(ctx, func(v *nodeSnapshot) bool { return v.Version >= version })
	}
	if basedOn != 0 && basedOn != version {
		return 0, admin.ConflictError(fmt.Sprintf("spec %d is in force, not %d", version, basedOn), "nothing was changed; `spillway get spec` prints the spec in force: apply the change to that")
	}
	return version, nil
}

// toAdminError translates errors of package consensus for the operator.
func toAdminError(err error) error {
	var conflict consensus.ErrConflict
	var refused consensus.ErrRefused
	switch {
	case errors.As(err, &conflict):
		return admin.ConflictError(err.Error(), "")
	case errors.As(err, &refused):
		return admin.BadRequestError(refused.Reason, "")
	case errors.Is(err, consensus.ErrUnknownOutcome):
		return admin.UnknownOutcomeError(err.Error())
	case errors.Is(err, consensus.ErrNoLeader), errors.Is(err, consensus.ErrStopped):
		return admin.UnavailableError(err.Error(), "`spillway status` shows which nodes are reachable; DNS answers and redirects continue meanwhile")
	}
	return err
}
