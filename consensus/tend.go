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
	tendEvery = time.Second
	tendBound = 5 * time.Second // of one change of members, with the questions before it
)

// tend has the leader do what Keep decides, for as long as the node runs.
func (n *Node) tend() {
	t := time.NewTicker(tendEvery)
	defer t.Stop()
	steady := map[string]time.Time{} // since when who wants a vote has kept up
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-t.C:
		}
		if !n.IsLeader() || !n.converses() {
			clear(steady)
			continue
		}
		n.tendOnce(steady)
	}
}

func (n *Node) tendOnce(steady map[string]time.Time) {
	ctx, cancel := context.WithTimeout(n.ctx, tendBound)
	defer cancel()
	all := n.standings(ctx, func(s Standing) bool { return s.Wants && !s.Voter })
	n.age(all, steady, time.Now())
	m, why := n.cfg.Keep.next(all)
	if m.Do == "" || m.Do == "remove" && !n.agreedSilent(ctx, m.ID, all) {
		return
	}
	r, err := n.reformHere(ctx, m)
	if err == nil {
		err = r.err()
	}
	if err != nil {
		n.log.Warn("changing members failed, will try again", "change", m.action(), "member", m.ID, "error", err)
		return
	}
	n.log.Warn("members changed by the leader itself", "change", m.action(), "member", m.ID, "reason", why)
	by := By{Actor: "leader:" + n.id, Reason: why}
	if err := n.Note(ctx, by, m.action(), m.subject()); err != nil {
		n.log.Warn("auditing a change of members failed", "change", m.action(), "member", m.ID, "error", err)
	}
}

// age notes since when candidates keep up, and forgets everybody else.
func (n *Node) age(all []Standing, steady map[string]time.Time, now time.Time) {
	keeping := map[string]bool{}
	for i := range all {
		s := &all[i]
		if !s.Wants || s.Voter || !s.keepsUp() {
			continue
		}
		keeping[s.ID] = true
		if _, ok := steady[s.ID]; !ok {
			steady[s.ID] = now
		}
		s.Steady = now.Sub(steady[s.ID])
	}
	maps.DeleteFunc(steady, func(id string, _ time.Time) bool { return !keeping[id] })
}

// agreedSilent asks the other voters whether they have heard of one that is to be removed. A majority must answer, the
// leader counted in, and nobody may have heard of it within Keep.RemoveAfter: the leader alone may be what is cut off.
func (n *Node) agreedSilent(ctx context.Context, id string, all []Standing) bool {
	voters, agree := 0, 1
	for _, s := range all {
		if !s.Voter {
			continue
		}
		if voters++; s.Self || s.ID == id || !s.Well() {
			continue
		}
		k, err := n.ask(ctx, s.Addr, id)
		switch {
		case err != nil:
		case k.heard && k.quiet < n.cfg.Keep.RemoveAfter:
			n.log.Warn("a voter that is silent here is heard elsewhere: it stays", "member", id, "heard_by", s.ID, "ago", k.quiet)
			return false
		default:
			agree++
		}
	}
	return 2*agree > voters
}

// converses reports whether nodes tell each other asides: who is silent is known by these alone.
func (n *Node) converses() bool { return n.cfg.Aside != nil && n.cfg.OnAside != nil }

// Known is Standings by what this node knows by itself, without asking anybody.
func (n *Node) Known() []Standing {
	return n.standings(n.ctx, func(Standing) bool { return false })
}

// Standings are the members as this node knows them, by name. It asks each how far it has applied the log, all at once,
// and waits a second for the answers at most.
func (n *Node) Standings(ctx context.Context) []Standing {
	return n.standings(ctx, func(Standing) bool { return true })
}

func (n *Node) standings(ctx context.Context, probe func(Standing) bool) []Standing {
	if !n.started.Load() {
		return nil
	}
	members, wanted, now := n.Members(), n.State().Wanted, time.Now()
	all := make([]Standing, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		s := Standing{Member: m, Self: m.ID == n.id, Failing: m.ID == n.id && n.DiskFailing(), Wants: slices.Contains(wanted, m.ID)}
		if !s.Self && n.converses() {
			s.Quiet, s.Heard = n.heard.quiet(m.ID, now)
		}
		all[i] = s
		if s.Self || !probe(s) {
			continue
		}
		wg.Go(func() { all[i].Behind, all[i].Failing, all[i].Asked = n.lag(ctx, m.Addr) })
	}
	wg.Wait()
	return all
}

// lag asks a node how many entries it lacks of what this one knows to be committed, and whether its disk takes no writes.
func (n *Node) lag(ctx context.Context, addr string) (entries uint64, failing, ok bool) {
	goal := n.raft.CommitIndex()
	at, failing, err := n.progressOf(ctx, addr)
	if err != nil {
		return 0, false, false
	}
	return goal - min(goal, at), failing, true
}

// Keeping is what the leader would do by itself, if this node led.
func (n *Node) Keeping() Keep { return n.cfg.Keep }

func (m membership) subject() string {
	if m.Addr == "" {
		return m.ID
	}
	return fmt.Sprintf("%s %s", m.ID, m.Addr)
}
