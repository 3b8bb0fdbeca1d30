package consensus

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	autopilotInterval = time.Second
	autopilotTimeout  = 5 * time.Second // of one membership change, with the questions before it
)

// runAutopilot makes the changes that AutopilotConfig decides on the leader, for as long as the node runs.
func (n *Node) runAutopilot() {
	t := time.NewTicker(autopilotInterval)
	defer t.Stop()
	steady := map[string]time.Time{} // by name: since when a pending voter has kept up
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-t.C:
		}
		if !n.IsLeader() || !n.hasGossip() {
			clear(steady)
			continue
		}
		n.runAutopilotOnce(steady)
	}
}

func (n *Node) runAutopilotOnce(steady map[string]time.Time) {
	ctx, cancel := context.WithTimeout(n.ctx, autopilotTimeout)
	defer cancel()
	all := n.collectMemberStatuses(ctx, func(s MemberStatus) bool { return s.PendingVote && !s.Voter })
	n.updateCaughtUp(all, steady, time.Now())
	m, why := n.cfg.Autopilot.nextChange(all)
	if m.Op == "" || m.Op == "remove" && !n.confirmSilent(ctx, m.ID, all) {
		return
	}
	r, err := n.changeMembershipAsLeader(ctx, m)
	if err == nil {
		err = r.toError()
	}
	if err != nil {
		n.log.Warn("changing the membership failed: the autopilot tries again", "change", m.auditAction(), "member", m.ID, "error", err)
		return
	}
	n.log.Warn("membership changed by the autopilot", "change", m.auditAction(), "member", m.ID, "reason", why)
	by := Attribution{Actor: "leader:" + n.id, Reason: why}
	if err := n.RecordAudit(ctx, by, m.auditAction(), m.auditSubject()); err != nil {
		n.log.Warn("auditing a membership change failed", "change", m.auditAction(), "member", m.ID, "error", err)
	}
}

// updateCaughtUp records since when pending voters keep up, and drops all others.
func (n *Node) updateCaughtUp(all []MemberStatus, steady map[string]time.Time, now time.Time) {
	keeping := map[string]bool{}
	for i := range all {
		s := &all[i]
		if !s.PendingVote || s.Voter || !s.isCaughtUp() {
			continue
		}
		keeping[s.ID] = true
		if _, ok := steady[s.ID]; !ok {
			steady[s.ID] = now
		}
		s.CaughtUpFor = now.Sub(steady[s.ID])
	}
	maps.DeleteFunc(steady, func(id string, _ time.Time) bool { return !keeping[id] })
}

// confirmSilent asks the other voters for their last contact with a voter that is to be removed. A majority must
// answer, the leader counted in, and none may have had a contact within AutopilotConfig.RemoveAfter: the leader alone
// may be the isolated node.
func (n *Node) confirmSilent(ctx context.Context, id string, all []MemberStatus) bool {
	voters, agree := 0, 1
	for _, s := range all {
		if !s.Voter {
			continue
		}
		if voters++; s.Self || s.ID == id || !s.IsReachable() {
			continue
		}
		k, err := n.askAboutMember(ctx, s.Addr, id)
		switch {
		case err != nil:
		case k.reachable && k.sinceContact < n.cfg.Autopilot.RemoveAfter:
			n.log.Warn("a voter that is silent here has contact with another node: it is kept", "member", id, "contact_with", s.ID, "ago", k.sinceContact)
			return false
		default:
			agree++
		}
	}
	return 2*agree > voters
}

// hasGossip reports whether gossip is configured: silence is measured only by gossip.
func (n *Node) hasGossip() bool { return n.cfg.GossipMessage != nil && n.cfg.OnGossip != nil }

// KnownMembers is ProbeMembers with only what this node has, without asking any other.
func (n *Node) KnownMembers() []MemberStatus {
	return n.collectMemberStatuses(n.ctx, func(MemberStatus) bool { return false })
}

// ProbeMembers returns the members as seen by this node, by name. It asks all at once for their applied index, and
// waits one second at most for the answers.
func (n *Node) ProbeMembers(ctx context.Context) []MemberStatus {
	return n.collectMemberStatuses(ctx, func(MemberStatus) bool { return true })
}

func (n *Node) collectMemberStatuses(ctx context.Context, probe func(MemberStatus) bool) []MemberStatus {
	if !n.started.Load() {
		return nil
	}
	members, wanted, now := n.Members(), n.State().PendingVoters, time.Now()
	all := make([]MemberStatus, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		s := MemberStatus{Member: m, Self: m.ID == n.id, DiskFailing: m.ID == n.id && n.DiskFailing(), PendingVote: slices.Contains(wanted, m.ID)}
		if !s.Self && n.hasGossip() {
			s.SinceContact, s.Contacted = n.contacts.sinceContact(m.ID, now)
		}
		all[i] = s
		if s.Self || !probe(s) {
			continue
		}
		wg.Go(func() { all[i].EntriesBehind, all[i].DiskFailing, all[i].Answered = n.queryLag(ctx, m.Addr) })
	}
	wg.Wait()
	return all
}

// queryLag asks a node how many entries it lacks of those known here to be committed, and whether its disk fails to
// take writes.
func (n *Node) queryLag(ctx context.Context, addr string) (entries uint64, failing, ok bool) {
	goal := n.raft.CommitIndex()
	at, failing, err := n.queryProgress(ctx, addr)
	if err != nil {
		return 0, false, false
	}
	return goal - min(goal, at), failing, true
}

// AutopilotConfig returns the settings that apply while this node is the leader.
func (n *Node) AutopilotConfig() AutopilotConfig { return n.cfg.Autopilot }

func (m membershipChange) auditSubject() string {
	if m.Addr == "" {
		return m.ID
	}
	return fmt.Sprintf("%s %s", m.ID, m.Addr)
}
