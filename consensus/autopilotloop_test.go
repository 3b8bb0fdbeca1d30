package consensus_test

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// enableGossip makes nodes send gossip, as all nodes of the global tier do.
func enableGossip(cfg *consensus.Config) {
	cfg.GossipMessage = func() []byte { return []byte("here") }
	cfg.OnGossip = func(string, []byte) {}
	cfg.Autopilot = consensus.AutopilotConfig{RemoveAfter: 72 * time.Hour, MinVoters: 3}
}

func (c *testCluster) voterIDs(n *consensus.Node) (ids []string) {
	for _, m := range n.Members() {
		if m.Voter {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// findAudit finds the newest record of an action.
func findAudit(n *consensus.Node, action string) (consensus.AuditRecord, bool) {
	for _, r := range slices.Backward(n.State().Audit) {
		if r.Action == action {
			return r, true
		}
	}
	return consensus.AuditRecord{}, false
}

// TestDeadVoterIsRemovedAndCanReturn kills one of four voters. It stays as long as one other node had a contact with
// it within the limit; then the leader removes it and records the reason. When it returns it reports its removal, and
// after it is added again it votes.
func TestDeadVoterIsRemovedAndCanReturn(t *testing.T) {
	t.Parallel()
	var log testkit.LogBuffer
	c := newTestCluster(t, true, func(cfg *consensus.Config) {
		enableGossip(cfg)
		cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	c.awaitLeader()
	c.joinNode("g4")
	c.dirs = append(c.dirs, memoryDir(t))
	c.certs = append(c.certs, nil)
	c.retryChange(func() error { return c.nodes[0].AddMember(c.newContext(), c.peers[3], true, testAuthor) })
	lead := c.awaitLeader()
	victim := (lead + 1) % 3
	dead := nodeName(victim)
	if _, err := c.nodes[lead].PutSpec(c.newContext(), 0, []byte("one"), "a"); err != nil {
		t.Fatal(err)
	}
	c.waitUntil("the victim has applied the spec", func() bool { return string(c.nodes[victim].State().Spec) == "one" }) // a quorum suffices for the write
	c.awaitSnapshot(victim)                                                                                              // of the state with the fourth voter: raft replays nothing after a membership change
	c.waitUntil("all nodes had contact with the victim", func() bool {
		for i, n := range c.nodes {
			if s := n.ProbeMembers(c.newContext()); i != victim && !slices.ContainsFunc(s, func(s consensus.MemberStatus) bool { return s.ID == dead && s.Contacted && s.Answered }) {
				return false
			}
		}
		return true
	})
	c.stopNode(victim)
	reachable := c.nodes[(lead+2)%3]
	c.waitUntil("the autopilot keeps the voter because another node had contact with it", func() bool {
		for _, n := range []*consensus.Node{c.nodes[lead], c.nodes[3]} {
			n.AgeContact(dead, 73*time.Hour)
		}
		if reachable.IsLeader() { // it had recent contact and would not ask: a busy machine
			_ = reachable.TransferLeadership(c.newContext(), nodeName(lead), testAuthor)
		}
		return len(log.Lines("it is kept", "member="+dead)) > 1
	})
	if got := c.voterIDs(c.nodes[3]); len(got) != 4 {
		t.Fatalf("a voter with recent contact to %s was removed: %q are left", reachable.Status().ID, got)
	}
	c.waitUntil("the dead voter is removed", func() bool {
		for i, n := range c.nodes {
			if i != victim {
				n.AgeContact(dead, 73*time.Hour) // repeated: its last messages may still be in transit
			}
		}
		return len(c.voterIDs(c.nodes[3])) == 3
	})
	c.waitUntil("its removal is in the audit", func() bool {
		r, ok := findAudit(c.nodes[3], "member remove")
		return ok && r.Subject == dead && strings.HasPrefix(r.Actor, "leader:g") && strings.Contains(r.Reason, "raft.remove_after is 72h")
	})

	c.startNode(victim)
	back := c.nodes[victim]
	c.waitUntil("the removed node answers from its last state", func() bool { return string(back.State().Spec) == "one" })
	c.waitUntil("it learns of its removal", func() bool {
		back.CheckMembership(c.newContext())
		o, outside := back.NonMember()
		return outside && strings.Contains(o.Reason, "removed by leader:g") && strings.Contains(o.Reason, "silent for")
	})
	c.retryChange(func() error { return reachable.AddMember(c.newContext(), c.peers[victim], true, testAuthor) })
	c.waitUntil("it votes again", func() bool { return len(c.voterIDs(back)) == 4 && back.Leader() != "" })
	c.waitUntil("it is a member again", func() bool {
		back.CheckMembership(c.newContext())
		_, outside := back.NonMember()
		return !outside
	})
}

// TestAutopilotKeepsThreeVoters has one of three voters dead for a year: it is kept, because two would remain.
func TestAutopilotKeepsThreeVoters(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, false, enableGossip)
	lead := c.awaitLeader()
	victim := (lead + 1) % 3
	c.waitUntil("all had contact with it", func() bool {
		for i, n := range c.nodes {
			if i != victim && !slices.ContainsFunc(n.ProbeMembers(c.newContext()), func(s consensus.MemberStatus) bool { return s.ID == nodeName(victim) && s.Contacted }) {
				return false
			}
		}
		return true
	})
	c.stopNode(victim)
	for i, n := range c.nodes {
		if i != victim {
			n.AgeContact(nodeName(victim), 365*24*time.Hour)
		}
	}
	for range 2 {
		c.doAsLeader(func(n *consensus.Node) error {
			n.RunAutopilotOnce(c.newContext())
			return nil
		})
	}
	n := c.nodes[c.awaitLeader()]
	if got := c.voterIDs(n); len(got) != 3 {
		t.Fatalf("%q are left", got)
	}
	if got := n.AutopilotConfig().DescribeOutlook(n.ProbeMembers(c.newContext()), nodeName(victim)); !strings.Contains(got, "add another first") {
		t.Errorf("its outlook is %q", got)
	}
}

// TestPendingVoterIsPromotedLater adds a voter that is not running and starts it afterwards: the leader at that time
// grants its vote without a second command.
func TestPendingVoterIsPromotedLater(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, true, enableGossip)
	c.awaitLeader()
	late := c.joinNode("g4")
	if err := late.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.nodes = c.nodes[:3]
	c.retryChange(func() error {
		err := c.nodes[0].AddMember(c.newContext(), c.peers[3], true, testAuthor)
		if isRefusedFor(err, "gets its vote when it has kept up") {
			return nil
		}
		return err
	})
	n := c.nodes[c.awaitLeader()]
	if got := n.State().PendingVoters; !slices.Equal(got, []string{"g4"}) {
		t.Fatalf("down for a vote are %q", got)
	}
	if r, ok := findAudit(n, "member add without a vote"); !ok || r.Actor != "op" {
		t.Errorf("the audit has %+v", n.State().Audit)
	}
	c.retryChange(func() error { return n.TransferLeadership(c.newContext(), "", testAuthor) })
	c.dirs = append(c.dirs, memoryDir(t))
	c.peers = c.peers[:3]
	c.joinNodeAt("g4", late.Addr().String())
	c.waitUntil("it has its vote", func() bool { return slices.Contains(c.voterIDs(c.nodes[0]), "g4") })
	c.waitUntil("it waits for nothing more", func() bool { return len(c.nodes[0].State().PendingVoters) == 0 })
	c.waitUntil("the audit names who granted it", func() bool {
		r, ok := findAudit(c.nodes[0], "member add")
		return ok && strings.HasPrefix(r.Actor, "leader:g") && strings.Contains(r.Reason, "kept up")
	})
}

// TestRemovalNeedsAMajorityOfAnswers: voters with recent contact that do not answer do not count as confirming
// another's silence.
func TestRemovalNeedsAMajorityOfAnswers(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, false, enableGossip)
	n := c.nodes[c.awaitLeader()]
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	all := []consensus.MemberStatus{
		{Member: consensus.Member{ID: n.Status().ID, Voter: true}, Self: true},
		{Member: consensus.Member{ID: "ghost", Voter: true}, SinceContact: 73 * time.Hour, Contacted: true},
		{Member: consensus.Member{ID: "learner"}},
	}
	answers := 1 // the leader's own
	for _, p := range c.peers {
		if p.ID == n.Status().ID {
			continue
		}
		answers++
		all = append(all, consensus.MemberStatus{Member: consensus.Member{ID: p.ID, Addr: p.Addr, Voter: true}})
	}
	for voters := answers + 1; voters <= 2*answers+1; voters++ {
		want := 2*answers > voters
		// A busy machine may lose an answer, so a majority may take more than one try; a minority never confirms.
		agreed := n.ConfirmSilent(c.newContext(), "ghost", all)
		for end := time.Now().Add(time.Minute); want && !agreed && time.Now().Before(end); {
			agreed = n.ConfirmSilent(c.newContext(), "ghost", all)
		}
		if agreed != want {
			t.Errorf("%d of %d voters answer: agreed %v, want %v", answers, voters, agreed, want)
		}
		mute := consensus.Member{ID: fmt.Sprintf("mute%d", voters), Addr: closed.Addr().String(), Voter: true}
		all = append(all, consensus.MemberStatus{Member: mute})
	}
}
