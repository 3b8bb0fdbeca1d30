package global

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// applied is how long a call waits for its own change to show in this node's answers.
const applied = 2 * time.Second

func (s *Server) backend() admin.Backend {
	return admin.Backend{
		Status: s.status, Explain: s.explain, Spec: s.currentSpec, Apply: s.apply,
		Drain: s.drain, Undrain: s.undrain, Drains: s.drains, Ready: s.ready,
		Members: s.members, AddMember: s.addMember, RemoveMember: s.removeMember, Lead: s.handOver,
		SpecNow: s.agreedSpec, DrainsNow: s.agreedDrains, Audit: s.auditRecords, Archive: s.archive, Restore: s.restore,
		Stage: s.stageShow, EndStage: s.endStage,
		Plan: s.planShow, PlanDiff: s.planDiff, PlanHistory: s.planHistory,
		DNSSEC: s.dnssec, ChangeDNSSEC: s.changeDNSSEC, RotateTickets: s.rotateTickets, Uplinks: s.uplinks, Basis: s.basis,
	}
}

// uplinks are the sessions with the regions' gateways.
func (s *Server) uplinks(context.Context) (*admin.UplinksAnswer, error) {
	return uplink.Page(s.cfg.Name, s.parent, nil), nil
}

// ready is nil once names are answered and calls redirected. A node that answers from its file has no key and waits for none:
// its names must go on.
func (s *Server) ready() error {
	v := s.view.Load()
	switch {
	case v == nil:
		return errors.New("no spec is in force: run spillway apply")
	case v.from == agreedState && len(v.state.TicketKeys) == 0:
		return errors.New("no ticket key is agreed yet: the leader makes one within a second")
	case s.node != nil && s.node.DiskFailing():
		return errors.New("the disk takes no writes of the Raft log: this node answers from its last state and takes no part in changes: free the disk, or replace it")
	}
	return nil
}

func (s *Server) currentSpec(context.Context) (*admin.SpecAnswer, error) {
	v, err := s.needView()
	if err != nil {
		return nil, err
	}
	return &admin.SpecAnswer{Version: v.version, Text: string(v.text)}, nil
}

func (s *Server) needView() (*View, error) {
	if v := s.view.Load(); v != nil {
		return v, nil
	}
	return nil, admin.Unavailable("no spec is in force yet", "spillway apply -f spec.yaml")
}

// apply puts a spec in force, or says what that would change and whom it would move.
func (s *Server) apply(ctx context.Context, r admin.ApplyRequest, actor string) (*admin.ApplyAnswer, error) {
	next, err := spec.Decode(cmp.Or(r.Name, "spec"), []byte(r.Text))
	if err == nil {
		err = steerable(next)
	}
	if err != nil {
		return nil, admin.BadRequest(err.Error(), "")
	}
	body := encodeSpec(next)
	if len(body) > consensus.MaxBody {
		return nil, admin.BadRequest(fmt.Sprintf("the spec has %d bytes as it is kept, more than the %d that fit", len(body), consensus.MaxBody), "take out what repeats, or split it over several planets")
	}
	version, err := s.versionFor(ctx, r.BasedOn)
	if err != nil {
		return nil, err
	}
	v := s.view.Load()
	trial, err := trialOf(&r, v, next)
	if err != nil {
		return nil, err
	}
	out := &admin.ApplyAnswer{DryRun: r.DryRun, Changes: changes(v, next), Moves: []admin.Move{}}
	if v != nil {
		s.demand.add(v.demands(), time.Now())
		minutes := s.demand.newest(minutesFor(r.DryRun))
		h, err := v.rehearse(next, minutes)
		if err != nil {
			return nil, admin.BadRequest(err.Error(), "")
		}
		if out.Moves = h.moves(); r.DryRun {
			out.Replay = h.report(minutes)
		}
	}
	under := s.node.State().Stage
	out.Stage = proposed(trial, version)
	if out.Version = version; r.DryRun || v != nil && v.version == version && len(out.Changes) == 0 && (under == nil || !r.Replace) {
		if !r.DryRun {
			out.Stage = nil
		}
		return out, nil // a version that changes nothing would only hide the last one that did
	}
	if under != nil && !r.Replace {
		return nil, onTrialAlready(under)
	}
	return out, s.change(ctx, out, consensus.Change{
		BasedOn: version, Body: body, By: consensus.By{Actor: actor, Reason: r.Reason}, Detail: inLines(out.Changes), Trial: trial, Replace: r.Replace,
	})
}

// inLines is a diff as the audit keeps it.
func inLines(changes []admin.Change) string {
	var out strings.Builder
	for _, c := range changes {
		out.WriteString(spec.Change(c).String() + "\n")
	}
	return out.String()
}

func changes(v *View, next *spec.Spec) []admin.Change {
	out, old := []admin.Change{}, &spec.Spec{}
	if v != nil {
		old = v.spec
	}
	for _, c := range spec.Diff(old, next) {
		out = append(out, admin.Change{Path: c.Path, From: c.From, To: c.To})
	}
	return out
}

// await gives this node's own View a moment to show what was agreed.
func (s *Server) await(ctx context.Context, shown func(*View) bool) {
	ctx, cancel := context.WithTimeout(ctx, applied)
	defer cancel()
	for {
		if v := s.view.Load(); v != nil && shown(v) {
			return
		}
		poke(s.news)
		if !sleep(ctx, 5*time.Millisecond) {
			return
		}
	}
}

// refusal turns consensus's errors into what an operator is told.
func refusal(err error) error {
	var conflict consensus.ErrConflict
	var refused consensus.ErrRefused
	switch {
	case errors.As(err, &conflict):
		return admin.Conflict(err.Error(), "")
	case errors.As(err, &refused):
		return admin.BadRequest(refused.Reason, "")
	case errors.Is(err, consensus.ErrNoLeader), errors.Is(err, consensus.ErrUnknownOutcome), errors.Is(err, consensus.ErrStopped):
		return admin.Unavailable(err.Error(), "spillway status shows which nodes are up; answers go on meanwhile")
	}
	return err
}
