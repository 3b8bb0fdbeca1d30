package consensus_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/identity"
)

var by = consensus.By{Actor: "op", Reason: "test"}

// join makes a node that no other has in its list.
func (c *cluster) join(name string) *consensus.Node {
	c.t.Helper()
	return c.joinAt(name, "127.0.0.1:0")
}

func (c *cluster) joinAt(name, listen string) *consensus.Node {
	c.t.Helper()
	cfg := consensus.Config{
		ID: name, Dir: c.t.TempDir(), Listen: listen, Join: true, Heartbeat: heartbeat(),
		Certs: c.cert(identity.ID{TrustDomain: domain, Role: identity.RoleGlobal, Name: name}),
	}
	if c.tune != nil {
		c.tune(&cfg)
	}
	n, err := consensus.New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	n.SetPeers(append(slices.Clone(c.peers), consensus.Peer{ID: name, Addr: n.Addr().String()}))
	if err := n.Start(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	c.nodes = append(c.nodes, n)
	c.peers = append(c.peers, consensus.Peer{ID: name, Addr: n.Addr().String()})
	return n
}

func refusedFor(err error, text string) bool {
	var r consensus.ErrRefused
	return errors.As(err, &r) && strings.Contains(r.Reason, text)
}

// TestMembersComeAndGo adds an edge without a vote and then a voter, through a follower; hands leadership to the new
// voter; removes an old one; and refuses what would end the cluster.
func TestMembersComeAndGo(t *testing.T) {
	c := newCluster(t, false, nil)
	lead := c.leader()
	follower := c.nodes[(lead+1)%3]
	if _, err := follower.PutSpec(c.ctx(), 0, []byte("one"), "a"); err != nil {
		t.Fatal(err)
	}
	edge := c.join("edge")
	if edge.State().SpecVersion != 0 || edge.Leader() != "" {
		t.Fatal("a node that nobody added has a cluster")
	}
	c.insist(func() error { return follower.AddMember(c.ctx(), c.peers[3], false, by) })
	c.eventually("the edge follows", func() bool { return edge.State().SpecVersion == 1 })
	if v, err := edge.PutSpec(c.ctx(), 1, []byte("two"), "a"); err != nil || v != 2 {
		t.Fatalf("writing through the edge: %d, %v", v, err)
	}
	if err := edge.Lead(c.ctx(), "edge", by); !refusedFor(err, "no vote") {
		t.Fatalf("an edge may lead: %v", err)
	}
	fourth := c.join("g4")
	c.insist(func() error { return follower.AddMember(c.ctx(), c.peers[4], true, by) })
	c.eventually("all know five members", func() bool {
		return !slices.ContainsFunc(c.nodes, func(n *consensus.Node) bool { return len(n.Members()) != 5 })
	})
	c.eventually("the new voter is up to date", func() bool { return fourth.State().SpecVersion == 2 })
	c.insist(func() error { return edge.Lead(c.ctx(), "g4", by) })
	for end := time.Now().Add(20 * time.Second); !fourth.IsLeader() && time.Now().Before(end); time.Sleep(time.Second) {
		_ = edge.Lead(c.ctx(), "g4", by) // somebody else was elected: a busy machine
	}
	if !fourth.IsLeader() {
		t.Fatal("the new voter does not lead")
	}
	c.insist(func() error { return edge.RemoveMember(c.ctx(), name(lead), by) })
	c.eventually("four are left", func() bool { return len(fourth.Members()) == 4 })
	for text, err := range map[string]error{
		"is no member":    fourth.RemoveMember(c.ctx(), "g9", by),
		"host:port":       fourth.AddMember(c.ctx(), consensus.Peer{ID: "g8", Addr: "nowhere"}, true, by),
		"lives at":        fourth.AddMember(c.ctx(), consensus.Peer{ID: "g8", Addr: c.peers[3].Addr}, true, by),
		"remove it first": fourth.AddMember(c.ctx(), c.peers[(lead+1)%3], false, by),
	} {
		if !refusedFor(err, text) {
			t.Errorf("want a refusal that says %q, got %v", text, err)
		}
	}
	if v, err := fourth.PutSpec(c.ctx(), 2, []byte("three"), "a"); err != nil || v != 3 {
		t.Fatalf("the cluster no longer writes: %d, %v", v, err)
	}
}

// TestAVoteIsEarned adds a voter that does not run: it gets no vote, and so takes none away. Once it runs and has caught
// up, it gets one.
func TestAVoteIsEarned(t *testing.T) {
	c := newCluster(t, false, nil)
	n := c.nodes[c.leader()]
	if _, err := n.PutSpec(c.ctx(), 0, []byte("one"), "a"); err != nil {
		t.Fatal(err)
	}
	absent := c.join("g4")
	addr := c.peers[3]
	if err := absent.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.nodes, c.peers = c.nodes[:3], c.peers[:3]
	c.insist(func() error {
		err := n.AddMember(c.ctx(), addr, true, by)
		if refusedFor(err, "without a vote") && refusedFor(err, "is it running") {
			return nil
		}
		if err == nil {
			t.Fatal("a vote for a node that is not there")
		}
		return err
	})
	voters := func() (count int) {
		for _, m := range n.Members() {
			if m.Voter {
				count++
			}
		}
		return count
	}
	if voters() != 3 || len(n.Members()) != 4 {
		t.Fatalf("%d voters among %d members, want 3 and 4", voters(), len(n.Members()))
	}
	fourth := c.join("g4")
	c.insist(func() error { return n.RemoveMember(c.ctx(), "g4", by) }) // it lives elsewhere now
	c.insist(func() error { return n.AddMember(c.ctx(), c.peers[3], true, by) })
	if voters() != 4 {
		t.Fatalf("%d voters, want 4", voters())
	}
	c.eventually("the new voter has the spec", func() bool { return fourth.State().SpecVersion == 1 })
}

// TestArchiveGoesForward restores an old spec into a cluster that has gone on since, and into one that is new.
func TestArchiveGoesForward(t *testing.T) {
	c := newCluster(t, true, nil)
	n := c.nodes[c.leader()]
	for i, text := range []string{"one", "two"} {
		if _, err := n.PutSpec(c.ctx(), uint64(i), []byte(text), "a"); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.PutDrain(c.ctx(), consensus.Drain{Path: "eu"}); err != nil {
		t.Fatal(err)
	}
	archive, err := n.Archive()
	if err != nil {
		t.Fatal(err)
	}
	held, err := consensus.Contents(archive)
	if err != nil || held.SpecVersion != 2 || len(held.Drains) != 1 {
		t.Fatalf("archive holds %+v (%v)", held, err)
	}
	damaged := append([]byte{}, archive...)
	damaged[len(damaged)/2] ^= 1
	if _, err := n.RestoreArchive(c.ctx(), damaged, by); !refusedFor(err, "checksum") {
		t.Fatalf("a damaged archive: %v", err)
	}
	for i, text := range []string{"three", "four", "five"} {
		if _, err := n.PutSpec(c.ctx(), uint64(2+i), []byte(text), "a"); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.DeleteDrain(c.ctx(), "eu", by); err != nil {
		t.Fatal(err)
	}
	before := n.State()
	var version uint64
	c.leading(func(n *consensus.Node) error {
		version, err = n.RestoreArchive(c.ctx(), archive, by)
		return err
	})
	if version < 6 { // more when a first try took place and its author did not hear so
		t.Fatalf("restoring: version %d", version)
	}
	c.converge()
	for _, x := range c.nodes {
		s := x.State()
		if string(s.Spec) != "two" || s.SpecVersion != version || len(s.Drains) != 1 || s.Index <= before.Index || s.Generation <= before.Generation || s.SpecHistory[0].Actor != "op" || version == 6 && string(s.SpecHistory[1].Body) != "five" {
			t.Fatalf("after the restore: %+v", s)
		}
	}

	// A cluster whose logs were wiped begins at a low index. Gateways follow it by its generation, also when the archive is
	// restored a second time and so is older than the last restore.
	last := c.nodes[c.leader()].State()
	fresh := newCluster(t, true, nil)
	fresh.leading(func(m *consensus.Node) error {
		version, err = m.RestoreArchive(fresh.ctx(), archive, by)
		if s := m.State(); err == nil && (version < 3 || s.Index <= held.Index || s.Generation < last.Generation || string(s.Spec) != "two") {
			t.Fatalf("restored as version %d at index %d, and the archive is of %d", version, s.Index, held.Index)
		}
		return err
	})
	fresh.converge()
	// What was restored survives a restart of everybody.
	fresh.stopAll()
	for i := range 3 {
		fresh.start(i)
	}
	generation := uint64(0)
	fresh.eventually("the restored spec is there again", func() bool {
		generation = fresh.nodes[0].State().Generation
		return fresh.nodes[0].State().SpecVersion == version
	})
	if generation < last.Generation {
		t.Fatalf("the generation is %d after a restart, and was %d or more", generation, last.Generation)
	}
}

// TestARestoreLosesNoWrite makes a write while the leader restores an archive, after it has read the state that the
// restored one replaces. The write waits for the restore: once its author is told that it is done, it is in force.
func TestARestoreLosesNoWrite(t *testing.T) {
	var during atomic.Pointer[func()]
	c := newCluster(t, false, func(cfg *consensus.Config) {
		cfg.Holds = func([]byte) consensus.Holds {
			if f := during.Swap(nil); f != nil {
				(*f)()
			}
			return consensus.Holds{}
		}
	})
	c.leading(func(n *consensus.Node) error {
		s, err := n.Read(c.ctx())
		if err == nil && s.SpecVersion == 0 {
			_, err = n.PutSpec(c.ctx(), 0, []byte("one"), "a")
		}
		return err
	})
	archive, err := c.nodes[c.leader()].Archive()
	if err != nil {
		t.Fatal(err)
	}
	c.leading(func(n *consensus.Node) error {
		written := make(chan error, 1)
		write := func() {
			go func() { written <- n.PutDrain(c.ctx(), consensus.Drain{Path: "eu", Reason: "test", Actor: "a"}) }()
			select {
			case err := <-written: // which is wrong; whether the write is lost is seen below
				written <- err
			case <-time.After(300 * time.Millisecond): // it waits for the restore
			}
		}
		during.Store(&write)
		if _, err := n.RestoreArchive(c.ctx(), archive, by); err != nil {
			if during.Swap(nil) == nil {
				<-written
			}
			return err
		}
		if during.Load() != nil {
			t.Fatal("nothing was written during the restore: the test shows nothing")
		}
		if err := <-written; err != nil {
			return err
		}
		s, err := n.Read(c.ctx())
		if err == nil && len(s.Drains) != 1 {
			t.Fatalf("the write was confirmed, and the drains in force are %+v", s.Drains)
		}
		return err
	})
}

// TestRecoverFromALostMajority: one node of three is left. Alone it cannot write; recovered it can, keeps what was
// agreed, and takes new members.
func TestRecoverFromALostMajority(t *testing.T) {
	c := newCluster(t, true, nil)
	if _, err := c.nodes[c.leader()].PutSpec(c.ctx(), 0, []byte("one"), "a"); err != nil {
		t.Fatal(err)
	}
	c.converge()
	for i := range 3 {
		c.stop(i)
	}
	cfg := consensus.Config{ID: "g1", Dir: c.dirs[0], Certs: c.certs[0], Peers: c.peers}
	s, err := consensus.Recover(cfg, false)
	if err != nil || string(s.Spec) != "one" || s.Generation == 0 {
		t.Fatalf("recovering: %+v, %v", s, err)
	}
	c.start(0)
	n := c.nodes[0]
	c.eventually("it leads alone", n.IsLeader)
	if got := n.State().Generation; got != s.Generation {
		t.Fatalf("it starts with generation %d, recovered with %d", got, s.Generation)
	}
	if got := n.Members(); len(got) != 1 || got[0].ID != "g1" || !got[0].Voter {
		t.Fatalf("members after recovery: %+v", got)
	}
	if v, err := n.PutSpec(c.ctx(), 1, []byte("two"), "a"); err != nil || v != 2 {
		t.Fatalf("writing after recovery: %d, %v", v, err)
	}
	c.dirs[1] = t.TempDir() // the second machine comes back wiped
	c.tune = func(cfg *consensus.Config) { cfg.Join = true }
	c.start(1)
	if err := n.AddMember(c.ctx(), c.peers[1], true, by); err != nil {
		t.Fatal(err)
	}
	c.eventually("the new second node follows", func() bool { return c.nodes[1].State().SpecVersion == 2 })

	if _, err := consensus.Recover(consensus.Config{ID: "g1", Dir: t.TempDir(), Certs: c.certs[0], Peers: c.peers}, false); !errors.Is(err, consensus.ErrNothingToRecover) {
		t.Fatalf("recovering an empty folder: %v", err)
	}
}

func FuzzMembership(f *testing.F) {
	f.Add([]byte(`{"do":"add","id":"g4","addr":"127.0.0.1:1","vote":true}`))
	f.Add([]byte(`{"do":"lead"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := consensus.DecodeMembership(b); err == nil && m.Do != "add" && m.Do != "remove" && m.Do != "lead" {
			t.Fatalf("took %+v", m)
		}
	})
}
