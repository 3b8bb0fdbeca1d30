package global

import (
	"context"
	"errors"
	"fmt"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
)

// members lists the global nodes and how they do, as far as this node knows.
func (s *Server) members(ctx context.Context) (*admin.MembersAnswer, error) {
	out := &admin.MembersAnswer{Node: s.cfg.Name, Members: []admin.Member{}, Outside: s.outside()}
	all := s.node.Standings(ctx)
	for _, m := range all {
		a := admin.Member{
			Name: m.ID, Addr: m.Addr, Voter: m.Voter, Leader: m.Leader, Health: health(m), Outlook: s.node.Keeping().Outlook(all, m.ID),
		}
		if m.Heard && !m.Self {
			quiet := m.Quiet.Milliseconds()
			a.LastContactMS = &quiet
		}
		if m.Asked {
			a.Behind = &m.Behind
		}
		out.Members = append(out.Members, a)
	}
	_, able, spare := consensus.Spare(all)
	out.CanWrite, out.Spare = &able, &spare
	return out, nil
}

// health is a member's state in a word.
func health(m consensus.Standing) string {
	switch {
	case !m.Well():
		return admin.HealthSilent
	case m.Failing:
		return admin.HealthCannotWrite
	case m.Asked && m.Behind > consensus.FarBehind:
		return admin.HealthBehind
	}
	return admin.HealthWell
}

// outside says that this node is no member, and how it becomes one; empty for a member.
func (s *Server) outside() string {
	o, ok := s.node.Outside()
	if !ok {
		return ""
	}
	text := o.By + " says that this node is no member"
	if o.Why != "" {
		text += ", " + o.Why
	}
	return fmt.Sprintf("%s: it answers from its last state and follows nobody: `spillway members add %s HOST:PORT` at any other global node takes it back", text, s.cfg.Name)
}

func (s *Server) addMember(ctx context.Context, r admin.MemberRequest, actor string) (*admin.MembersAnswer, error) {
	if err := s.node.AddMember(ctx, consensus.Peer{ID: r.Name, Addr: r.Addr}, r.Voter, consensus.By{Actor: actor, Reason: r.Reason}); err != nil {
		return nil, refusal(err)
	}
	s.log.Info("member added", "member", r.Name, "addr", r.Addr, "voter", r.Voter, "actor", actor, "reason", r.Reason)
	return s.members(ctx)
}

func (s *Server) removeMember(ctx context.Context, name, reason, actor string) (*admin.MembersAnswer, error) {
	if err := s.node.RemoveMember(ctx, name, consensus.By{Actor: actor, Reason: reason}); err != nil {
		return nil, refusal(err)
	}
	s.log.Info("member removed", "member", name, "actor", actor, "reason", reason)
	return s.members(ctx)
}

func (s *Server) handOver(ctx context.Context, r admin.LeaderRequest, actor string) (*admin.MembersAnswer, error) {
	if err := s.node.Lead(ctx, r.To, consensus.By{Actor: actor, Reason: r.Reason}); err != nil {
		return nil, refusal(err)
	}
	s.log.Info("leadership handed on", "to", r.To, "actor", actor, "reason", r.Reason)
	s.await(ctx, func(*View) bool { return s.node.Leader() != "" && (r.To == "" || s.node.Leader() == r.To) })
	if now := s.node.Leader(); r.To != "" && now != r.To {
		return nil, admin.Unavailable(fmt.Sprintf("leadership was given up, but went to %s and not to %s", orNobody(now), r.To), "try again when the nodes are less busy")
	}
	return s.members(ctx)
}

func (s *Server) archive(context.Context) (*admin.ArchiveAnswer, error) {
	if s.node.State().SpecVersion == 0 {
		return nil, admin.Unavailable("nothing is agreed yet: there is nothing to save", "spillway apply -f spec.yaml")
	}
	b, err := s.node.Archive()
	if err != nil {
		return nil, err
	}
	return &admin.ArchiveAnswer{Data: b}, nil
}

func (s *Server) restore(ctx context.Context, r admin.ArchiveRequest, actor string) (*admin.RestoreAnswer, error) {
	old, err := consensus.Contents(r.Data)
	if err != nil {
		return nil, admin.BadRequest(err.Error(), "`spillway snapshot inspect FILE` says whether a file is whole")
	}
	if err := checkSpec(nil, old.Spec); err != nil {
		return nil, admin.BadRequest("the spec in the file: "+err.Error(), "")
	}
	version, err := s.node.RestoreArchive(ctx, r.Data, consensus.By{Actor: actor, Reason: r.Reason})
	if errors.Is(err, consensus.ErrNotLeader) {
		return nil, admin.Unavailable(fmt.Sprintf("only the leader can restore, and that is %s", orNobody(s.node.Leader())), "name the leader's admin address with --server")
	}
	if err != nil {
		return nil, refusal(err)
	}
	s.log.Warn("state restored from an archive", "version", version, "archived_version", old.SpecVersion, "actor", actor, "reason", r.Reason)
	s.await(ctx, func(v *View) bool { return v.version >= version })
	return &admin.RestoreAnswer{Version: version}, nil
}

func orNobody(name string) string {
	if name == "" {
		return "nobody now"
	}
	return name
}
