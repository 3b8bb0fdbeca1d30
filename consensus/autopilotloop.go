package consensus

import (
	"context"
	"log/slog"
	"maps"
	"time"
)

const (
	autopilotInterval = time.Second
	autopilotTimeout  = 5 * time.Second // of one membership change, with the questions before it
)

// autopilot changes the membership on the leader: see AutopilotConfig.
type autopilot struct {
	id      string
	log     *slog.Logger
	config  AutopilotConfig
	cluster interface{ IsLeader() bool }
	members *memberMonitor

	ask              func(ctx context.Context, addr, id string) (memberAnswer, error)
	changeMembership func(ctx context.Context, m membershipChange) (commandResult, error)
	recordAudit      func(ctx context.Context, by Attribution, action, subject string) error
}

// runAutopilot makes the changes that AutopilotConfig decides on the leader, until ctx ends.
func (p *autopilot) runAutopilot(ctx context.Context) {
	t := time.NewTicker(autopilotInterval)
	defer t.Stop()
	steady := map[string]time.Time{} // by name: since when a pending voter has kept up
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if !p.cluster.IsLeader() || !p.members.hasGossip {
			clear(steady)
			continue
		}
		p.runAutopilotOnce(ctx, steady)
	}
}

func (p *autopilot) runAutopilotOnce(ctx context.Context, steady map[string]time.Time) {
	ctx, cancel := context.WithTimeout(ctx, autopilotTimeout)
	defer cancel()
	all := p.members.collectMemberStatuses(ctx, func(s MemberStatus) bool { return s.PendingVote && !s.Voter })
	updateCaughtUp(all, steady, time.Now())
	m, why := p.config.nextChange(all)
	if m.Op == "" || m.Op == "remove" && !p.confirmSilent(ctx, m.ID, all) {
		return
	}
	r, err := p.changeMembership(ctx, m)
	if err == nil {
		err = r.toError()
	}
	if err != nil {
		p.log.Warn("changing the membership failed: the autopilot tries again", "change", m.auditAction(), "member", m.ID, "error", err)
		return
	}
	p.log.Warn("membership changed by the autopilot", "change", m.auditAction(), "member", m.ID, "reason", why)
	by := Attribution{Actor: "leader:" + p.id, Reason: why}
	if err := p.recordAudit(ctx, by, m.auditAction(), m.auditSubject()); err != nil {
		p.log.Warn("auditing a membership change failed", "change", m.auditAction(), "member", m.ID, "error", err)
	}
}

// updateCaughtUp records since when pending voters keep up, and drops all others.
func updateCaughtUp(all []MemberStatus, steady map[string]time.Time, now time.Time) {
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
func (p *autopilot) confirmSilent(ctx context.Context, id string, all []MemberStatus) bool {
	voters, agree := 0, 1
	for _, s := range all {
		if !s.Voter {
			continue
		}
		if voters++; s.Self || s.ID == id || !s.IsReachable() {
			continue
		}
		k, err := p.ask(ctx, s.Addr, id)
		switch {
		case err != nil:
		case k.reachable && k.sinceContact < p.config.RemoveAfter:
			p.log.Warn("a voter that is silent here has contact with another node: it is kept", "member", id, "contact_with", s.ID, "ago", k.sinceContact)
			return false
		default:
			agree++
		}
	}
	return 2*agree > voters
}
