package consensus_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
)

// talkative has nodes tell each other something, as all of the global tier's do.
func talkative(cfg *consensus.Config) {
	cfg.Aside = func() []byte { return []byte("here") }
	cfg.OnAside = func(string, []byte) {}
	cfg.Keep = consensus.Keep{RemoveAfter: 72 * time.Hour, MinVoters: 3}
}

func (c *cluster) voters(n *consensus.Node) (ids []string) {
	for _, m := range n.Members() {
		if m.Voter {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// audited finds the newest record of an action.
func audited(n *consensus.Node, action string) (consensus.Record, bool) {
	for _, r := range slices.Backward(n.State().Audit) {
		if r.Action == action {
			return r, true
		}
	}
	return consensus.Record{}, false
}

// TestADeadVoterIsRemovedAndComesBack kills one of four voters. As long as one other node has heard of it within the
// limit it stays; then the leader takes it out and says why. When it returns it learns what happened, and added again
// it votes.
func TestADeadVoterIsRemovedAndComesBack(t *testing.T) {
	c := newCluster(t, true, talkative)
	c.leader()
	c.join("g4")
	c.dirs = append(c.dirs, memoryDir(t))
	c.certs = append(c.certs, nil)
	c.insist(func() error { return c.nodes[0].AddMember(c.ctx(), c.peers[3], true, by) })
	lead := c.leader()
	victim := (lead + 1) % 3
	dead := name(victim)
	if _, err := c.nodes[lead].PutSpec(c.ctx(), 0, []byte("one"), "a"); err != nil {
		t.Fatal(err)
	}
	c.eventually("everybody heard the victim", func() bool {
		for i, n := range c.nodes {
			if s := n.Standings(c.ctx()); i != victim && !slices.ContainsFunc(s, func(s consensus.Standing) bool { return s.ID == dead && s.Heard && s.Asked }) {
				return false
			}
		}
		return true
	})
	c.stop(victim)
	witness := c.nodes[(lead+2)%3]
	for _, n := range []*consensus.Node{c.nodes[lead], c.nodes[3]} {
		n.Unhear(dead, 73*time.Hour)
	}
	time.Sleep(2500 * time.Millisecond) // the steward looks once a second
	if got := c.voters(c.nodes[3]); len(got) != 4 {
		t.Fatalf("a voter that %s heard just now was removed: %q are left", witness.Status().ID, got)
	}
	c.eventually("the dead voter is removed", func() bool {
		for i, n := range c.nodes {
			if i != victim {
				n.Unhear(dead, 73*time.Hour) // again and again: its last words may still be under way
			}
		}
		return len(c.voters(c.nodes[3])) == 3
	})
	c.eventually("its removal is in the audit", func() bool {
		r, ok := audited(c.nodes[3], "member remove")
		return ok && r.Subject == dead && strings.HasPrefix(r.Actor, "leader:g") && strings.Contains(r.Reason, "raft.remove_after is 72h")
	})

	c.start(victim)
	back := c.nodes[victim]
	c.eventually("the removed node answers from its last state", func() bool { return string(back.State().Spec) == "one" })
	c.eventually("it learns of its removal", func() bool {
		back.Inquire(c.ctx())
		o, outside := back.Outside()
		return outside && strings.Contains(o.Why, "removed by leader:g") && strings.Contains(o.Why, "silent for")
	})
	c.insist(func() error { return witness.AddMember(c.ctx(), c.peers[victim], true, by) })
	c.eventually("it votes again", func() bool { return len(c.voters(back)) == 4 && back.Leader() != "" })
	c.eventually("it knows that it is a member", func() bool {
		back.Inquire(c.ctx())
		_, outside := back.Outside()
		return !outside
	})
}

// TestThreeVotersStayThree has one of three voters dead for a year: two would be left, and so it stays.
func TestThreeVotersStayThree(t *testing.T) {
	c := newCluster(t, false, talkative)
	lead := c.leader()
	victim := (lead + 1) % 3
	c.eventually("all heard it", func() bool {
		for i, n := range c.nodes {
			if i != victim && !slices.ContainsFunc(n.Standings(c.ctx()), func(s consensus.Standing) bool { return s.ID == name(victim) && s.Heard }) {
				return false
			}
		}
		return true
	})
	c.stop(victim)
	for i, n := range c.nodes {
		if i != victim {
			n.Unhear(name(victim), 365*24*time.Hour)
		}
	}
	time.Sleep(2500 * time.Millisecond)
	n := c.nodes[c.leader()]
	if got := c.voters(n); len(got) != 3 {
		t.Fatalf("%q are left", got)
	}
	if got := n.Keeping().Outlook(n.Standings(c.ctx()), name(victim)); !strings.Contains(got, "add another first") {
		t.Errorf("its outlook is %q", got)
	}
}

// TestAVoteComesLater adds a voter that does not run, and starts it afterwards: it gets its vote without being added
// again, from whoever leads by then.
func TestAVoteComesLater(t *testing.T) {
	c := newCluster(t, true, talkative)
	c.leader()
	late := c.join("g4")
	if err := late.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.nodes = c.nodes[:3]
	c.insist(func() error {
		err := c.nodes[0].AddMember(c.ctx(), c.peers[3], true, by)
		if refusedFor(err, "gets its vote when it has kept up") {
			return nil
		}
		return err
	})
	n := c.nodes[c.leader()]
	if got := n.State().Wanted; !slices.Equal(got, []string{"g4"}) {
		t.Fatalf("down for a vote are %q", got)
	}
	if r, ok := audited(n, "member add without a vote"); !ok || r.Actor != "op" {
		t.Errorf("the audit has %+v", n.State().Audit)
	}
	c.insist(func() error { return n.Lead(c.ctx(), "", by) })
	c.dirs = append(c.dirs, memoryDir(t))
	c.peers = c.peers[:3]
	c.joinAt("g4", late.Addr().String())
	c.eventually("it has its vote", func() bool { return slices.Contains(c.voters(c.nodes[0]), "g4") })
	c.eventually("it waits for nothing more", func() bool { return len(c.nodes[0].State().Wanted) == 0 })
	c.eventually("the audit says who gave it", func() bool {
		r, ok := audited(c.nodes[0], "member add")
		return ok && strings.HasPrefix(r.Actor, "leader:g") && strings.Contains(r.Reason, "kept up")
	})
}

// TestRemovalNeedsAMajorityOfAnswers: voters that the leader hears and cannot ask do not agree that another is silent.
func TestRemovalNeedsAMajorityOfAnswers(t *testing.T) {
	c := newCluster(t, false, talkative)
	n := c.nodes[c.leader()]
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	all := []consensus.Standing{
		{Member: consensus.Member{ID: n.Status().ID, Voter: true}, Self: true},
		{Member: consensus.Member{ID: "ghost", Voter: true}, Quiet: 73 * time.Hour, Heard: true},
		{Member: consensus.Member{ID: "learner"}},
	}
	answers := 1 // the leader's own
	for _, p := range c.peers {
		if p.ID == n.Status().ID {
			continue
		}
		answers++
		all = append(all, consensus.Standing{Member: consensus.Member{ID: p.ID, Addr: p.Addr, Voter: true}})
	}
	for voters := answers + 1; voters <= 2*answers+1; voters++ {
		want := 2*answers > voters
		// A busy machine may lose an answer, so a majority may take more than one try; a minority never agrees.
		agreed := n.AgreedSilent(c.ctx(), "ghost", all)
		for end := time.Now().Add(20 * time.Second); want && !agreed && time.Now().Before(end); {
			agreed = n.AgreedSilent(c.ctx(), "ghost", all)
		}
		if agreed != want {
			t.Errorf("%d of %d voters answer: agreed %v, want %v", answers, voters, agreed, want)
		}
		mute := consensus.Member{ID: fmt.Sprintf("mute%d", voters), Addr: closed.Addr().String(), Voter: true}
		all = append(all, consensus.Standing{Member: mute})
	}
}
