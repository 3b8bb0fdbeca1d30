package global

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
)

// memberAdmin changes the cluster and its secrets for the operator, and archives its state.
type memberAdmin struct {
	name     string
	log      *slog.Logger
	node     *consensus.Node
	snapshot *currentSnapshot
	clock    *nodeClock
	auditor  *auditor
}

// listMembers lists the global nodes and their health, as far as this node knows.
func (s *memberAdmin) listMembers(ctx context.Context) (*admin.MembersAnswer, error) {
	out := &admin.MembersAnswer{Node: s.name, Members: []admin.Member{}, Outside: s.describeNonMember()}
	all, clock := s.node.ProbeMembers(ctx), s.clock.Load()
	for _, m := range all {
		a := admin.Member{
			Name: m.ID, Addr: m.Addr, Voter: m.Voter, Leader: m.Leader, Health: memberHealth(m), Outlook: s.node.AutopilotConfig().DescribeOutlook(all, m.ID),
			ClockOffsetMS: clock.offsetMS(s.name, m.ID),
		}
		if m.Contacted && !m.Self {
			quiet := m.SinceContact.Milliseconds()
			a.LastContactMS = &quiet
		}
		if m.Answered {
			a.Behind = &m.EntriesBehind
		}
		out.Members = append(out.Members, a)
	}
	out.Clock = clock.adminStatus()
	_, able, spare := consensus.CountSpareVoters(all)
	out.CanWrite, out.Spare = &able, &spare
	return out, nil
}

// memberHealth returns a member's health as one word.
func memberHealth(m consensus.MemberStatus) string {
	switch {
	case !m.IsReachable():
		return admin.MemberSilent
	case m.DiskFailing:
		return admin.MemberCannotWrite
	case m.Answered && m.EntriesBehind > consensus.MaxEntriesBehind:
		return admin.MemberBehind
	}
	return admin.MemberHealthy
}

// describeNonMember describes how a node that is not a cluster member becomes one; empty for a member.
func (s *memberAdmin) describeNonMember() string {
	o, ok := s.node.NonMember()
	if !ok {
		return ""
	}
	text := o.ReportedBy + " reports that this node is not a member"
	if o.Reason != "" {
		text += ", " + o.Reason
	}
	return fmt.Sprintf("%s: it answers from its last state and receives no changes: run `spillway members add %s HOST:PORT` at any other global node", text, s.name)
}

func (s *memberAdmin) addMember(ctx context.Context, r admin.MemberRequest, actor string) (*admin.MembersAnswer, error) {
	if err := s.node.AddMember(ctx, consensus.RaftPeer{ID: r.Name, Addr: r.Addr}, r.Voter, consensus.Attribution{Actor: actor, Reason: r.Reason}); err != nil {
		return nil, toAdminError(err)
	}
	s.log.Info("member added", "member", r.Name, "addr", r.Addr, "voter", r.Voter, "actor", actor, "reason", r.Reason)
	return s.listMembers(ctx)
}

func (s *memberAdmin) removeMember(ctx context.Context, name, reason, actor string) (*admin.MembersAnswer, error) {
	if err := s.node.RemoveMember(ctx, name, consensus.Attribution{Actor: actor, Reason: reason}); err != nil {
		return nil, toAdminError(err)
	}
	s.log.Info("member removed", "member", name, "actor", actor, "reason", reason)
	return s.listMembers(ctx)
}

func (s *memberAdmin) transferLeadership(ctx context.Context, r admin.LeaderRequest, actor string) (*admin.MembersAnswer, error) {
	if err := s.node.TransferLeadership(ctx, r.To, consensus.Attribution{Actor: actor, Reason: r.Reason}); err != nil {
		return nil, toAdminError(err)
	}
	s.log.Info("leadership transferred", "to", r.To, "actor", actor, "reason", r.Reason)
	s.snapshot.awaitSnapshot(ctx, func(*nodeSnapshot) bool { return s.node.Leader() != "" && (r.To == "" || s.node.Leader() == r.To) })
	if now := s.node.Leader(); r.To != "" && now != r.To {
		return nil, admin.UnavailableError(fmt.Sprintf("leadership was transferred, but the leader is %s and not %s", leaderOrNone(now), r.To), "try again when the nodes are less busy")
	}
	return s.listMembers(ctx)
}

func (s *memberAdmin) archiveState(context.Context) (*admin.ArchiveAnswer, error) {
	if s.node.State().SpecVersion == 0 {
		return nil, admin.UnavailableError("no spec is committed yet: there is no state to archive", "spillway apply -f spec.yaml")
	}
	b, err := s.node.EncodeArchive()
	if err != nil {
		return nil, err
	}
	return &admin.ArchiveAnswer{Data: b}, nil
}

func (s *memberAdmin) restoreState(ctx context.Context, r admin.ArchiveRequest, actor string) (*admin.RestoreAnswer, error) {
	old, err := consensus.DecodeArchive(r.Data)
	if err != nil {
		return nil, admin.BadRequestError(err.Error(), "`spillway snapshot inspect FILE` checks whether a file is complete")
	}
	if err := checkSpec(nil, old.Spec); err != nil {
		return nil, admin.BadRequestError("the spec in the file: "+err.Error(), "")
	}
	version, err := s.node.RestoreArchive(ctx, r.Data, consensus.Attribution{Actor: actor, Reason: r.Reason})
	if errors.Is(err, consensus.ErrNotLeader) {
		return nil, admin.UnavailableError(fmt.Sprintf("only the leader can restore an archive, and the leader is %s", leaderOrNone(s.node.Leader())), "name the leader's admin address with --server")
	}
	if err != nil {
		return nil, toAdminError(err)
	}
	s.log.Warn("state restored from an archive", "version", version, "archived_version", old.SpecVersion, "actor", actor, "reason", r.Reason)
	s.snapshot.awaitSnapshot(ctx, func(v *nodeSnapshot) bool { return v.Version >= version })
	return &admin.RestoreAnswer{Version: version}, nil
}

func leaderOrNone(name string) string {
	if name == "" {
		return "not elected yet"
	}
	return name
}

// rotateTicketKeys puts a new ticket key in force; with r.Purge it replaces all others.
func (s *memberAdmin) rotateTicketKeys(ctx context.Context, r admin.TicketsRequest, actor string) (*admin.TicketsAnswer, error) {
	if err := s.node.ReplaceTicketKeys(ctx, r.Purge, consensus.Attribution{Actor: actor, Reason: r.Reason}); err != nil {
		return nil, toAdminError(err)
	}
	agreed := s.node.State()
	s.log.Info("ticket keys rotated", "purge", r.Purge, "keys", len(agreed.TicketKeys), "actor", actor, "reason", r.Reason)
	s.snapshot.awaitSnapshot(ctx, func(v *nodeSnapshot) bool { return v.state.Index >= agreed.Index })
	out := &admin.TicketsAnswer{Keys: []time.Time{}}
	for _, k := range s.node.State().TicketKeys {
		out.Keys = append(out.Keys, k.At)
	}
	return out, nil
}
