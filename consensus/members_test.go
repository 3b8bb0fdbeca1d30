package consensus_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/identity"
)

var testAuthor = consensus.Attribution{Actor: "op", Reason: "test"}

// joinNode creates a node that is in no other node's list.
func (c *testCluster) joinNode(name string) *consensus.Node {
	c.t.Helper()
	return c.joinNodeAt(name, "127.0.0.1:0")
}

func (c *testCluster) joinNodeAt(name, listen string) *consensus.Node {
	c.t.Helper()
	cfg := consensus.Config{
		ID: name, Dir: c.t.TempDir(), Listen: listen, Join: true, Heartbeat: testHeartbeat(),
		Certs: c.issueCerts(identity.ID{TrustDomain: testDomain, Role: identity.RoleGlobal, Name: name}),
	}
	if c.configure != nil {
		c.configure(&cfg)
	}
	n, err := consensus.New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	n.SetPeers(append(slices.Clone(c.peers), consensus.RaftPeer{ID: name, Addr: n.Addr().String()}))
	if err := n.Start(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	c.nodes = append(c.nodes, n)
	c.peers = append(c.peers, consensus.RaftPeer{ID: name, Addr: n.Addr().String()})
	return n
}

func isRefusedFor(err error, text string) bool {
	var r consensus.ErrRefused
	return errors.As(err, &r) && strings.Contains(r.Reason, text)
}

// TestMembersAreAddedAndRemoved adds a non-voter and then a voter, through a follower. It transfers leadership to the
// new voter, removes an old one, and checks that changes that would destroy the cluster are refused.
func TestMembersAreAddedAndRemoved(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, false, nil)
	lead := c.awaitLeader()
	follower := c.nodes[(lead+1)%3]
	if _, err := follower.PutSpec(c.newContext(), 0, []byte("one"), "a"); err != nil {
		t.Fatal(err)
	}
	edge := c.joinNode("edge")
	if edge.State().SpecVersion != 0 || edge.Leader() != "" {
		t.Fatal("a node that was not added has a cluster")
	}
	c.retryChange(func() error { return follower.AddMember(c.newContext(), c.peers[3], false, testAuthor) })
	c.waitUntil("the edge follows", func() bool { return edge.State().SpecVersion == 1 })
	if v, err := edge.PutSpec(c.newContext(), 1, []byte("two"), "a"); err != nil || v != 2 {
		t.Fatalf("writing through the edge: %d, %v", v, err)
	}
	if err := edge.TransferLeadership(c.newContext(), "edge", testAuthor); !isRefusedFor(err, "no vote") {
		t.Fatalf("an edge may lead: %v", err)
	}
	fourth := c.joinNode("g4")
	c.retryChange(func() error { return follower.AddMember(c.newContext(), c.peers[4], true, testAuthor) })
	c.waitUntil("all know five members", func() bool {
		return !slices.ContainsFunc(c.nodes, func(n *consensus.Node) bool { return len(n.Members()) != 5 })
	})
	c.waitUntil("the new voter is up to date", func() bool { return fourth.State().SpecVersion == 2 })
	c.retryChange(func() error { return edge.TransferLeadership(c.newContext(), "g4", testAuthor) })
	c.waitUntil("the new voter leads", func() bool {
		if !fourth.IsLeader() {
			_ = edge.TransferLeadership(c.newContext(), "g4", testAuthor) // another node was elected: a busy machine
		}
		return fourth.IsLeader()
	})
	c.retryChange(func() error { return edge.RemoveMember(c.newContext(), nodeName(lead), testAuthor) })
	c.waitUntil("four are left", func() bool { return len(fourth.Members()) == 4 })
	for text, err := range map[string]error{
		"is not a member":         fourth.RemoveMember(c.newContext(), "g9", testAuthor),
		"host:port":               fourth.AddMember(c.newContext(), consensus.RaftPeer{ID: "g8", Addr: "nowhere"}, true, testAuthor),
		"already has the address": fourth.AddMember(c.newContext(), consensus.RaftPeer{ID: "g8", Addr: c.peers[3].Addr}, true, testAuthor),
		"remove it first":         fourth.AddMember(c.newContext(), c.peers[(lead+1)%3], false, testAuthor),
	} {
		if !isRefusedFor(err, text) {
			t.Errorf("want a refusal with %q, got %v", text, err)
		}
	}
	if v, err := fourth.PutSpec(c.newContext(), 2, []byte("three"), "a"); err != nil || v != 3 {
		t.Fatalf("the cluster no longer writes: %d, %v", v, err)
	}
}

// TestNewVoterGetsItsVoteAfterCatchingUp adds a voter that is not running: it gets no vote, and so does not raise the
// majority. Once it runs and has caught up, it gets its vote.
func TestNewVoterGetsItsVoteAfterCatchingUp(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, false, nil)
	n := c.nodes[c.awaitLeader()]
	if _, err := n.PutSpec(c.newContext(), 0, []byte("one"), "a"); err != nil {
		t.Fatal(err)
	}
	absent := c.joinNode("g4")
	addr := c.peers[3]
	if err := absent.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.nodes, c.peers = c.nodes[:3], c.peers[:3]
	c.retryChange(func() error {
		err := n.AddMember(c.newContext(), addr, true, testAuthor)
		if isRefusedFor(err, "without a vote") && isRefusedFor(err, "is it running") {
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
	fourth := c.joinNode("g4")
	c.retryChange(func() error { return n.RemoveMember(c.newContext(), "g4", testAuthor) }) // its address has changed
	c.retryChange(func() error { return n.AddMember(c.newContext(), c.peers[3], true, testAuthor) })
	if voters() != 4 {
		t.Fatalf("%d voters, want 4", voters())
	}
	c.waitUntil("the new voter has the spec", func() bool { return fourth.State().SpecVersion == 1 })
}

// TestRestoredArchiveGetsANewerVersion restores an old spec into a cluster with later changes, and into a new
// cluster.
func TestRestoredArchiveGetsANewerVersion(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, true, nil)
	n := c.nodes[c.awaitLeader()]
	for i, text := range []string{"one", "two"} {
		if _, err := n.PutSpec(c.newContext(), uint64(i), []byte(text), "a"); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.PutDrain(c.newContext(), consensus.Drain{Path: "eu"}); err != nil {
		t.Fatal(err)
	}
	archive, err := n.EncodeArchive()
	if err != nil {
		t.Fatal(err)
	}
	held, err := consensus.DecodeArchive(archive)
	if err != nil || held.SpecVersion != 2 || len(held.Drains) != 1 {
		t.Fatalf("archive holds %+v (%v)", held, err)
	}
	damaged := append([]byte{}, archive...)
	damaged[len(damaged)/2] ^= 1
	if _, err := n.RestoreArchive(c.newContext(), damaged, testAuthor); !isRefusedFor(err, "checksum") {
		t.Fatalf("a damaged archive: %v", err)
	}
	for i, text := range []string{"three", "four", "five"} {
		if _, err := n.PutSpec(c.newContext(), uint64(2+i), []byte(text), "a"); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.DeleteDrain(c.newContext(), "eu", testAuthor); err != nil {
		t.Fatal(err)
	}
	before := n.State()
	var version uint64
	c.doAsLeader(func(n *consensus.Node) error {
		version, err = n.RestoreArchive(c.newContext(), archive, testAuthor)
		return err
	})
	if version < 6 { // more when an earlier try succeeded and its answer was lost
		t.Fatalf("restoring: version %d", version)
	}
	c.awaitSameState()
	for _, x := range c.nodes {
		s := x.State()
		if string(s.Spec) != "two" || s.SpecVersion != version || len(s.Drains) != 1 || s.Index <= before.Index || s.Generation <= before.Generation || s.SpecHistory[0].Actor != "op" || version == 6 && string(s.SpecHistory[1].Body) != "five" {
			t.Fatalf("after the restore: %+v", s)
		}
	}

	// A cluster whose logs were wiped begins at a low index. Gateways follow it by its generation, also when the
	// archive is restored a second time and so is older than the last restore.
	last := c.nodes[c.awaitLeader()].State()
	fresh := newTestCluster(t, true, nil)
	fresh.doAsLeader(func(m *consensus.Node) error {
		version, err = m.RestoreArchive(fresh.newContext(), archive, testAuthor)
		if s := m.State(); err == nil && (version < 3 || s.Index <= held.Index || s.Generation < last.Generation || string(s.Spec) != "two") {
			t.Fatalf("restored as version %d at index %d, and the archive is of %d", version, s.Index, held.Index)
		}
		return err
	})
	fresh.awaitSameState()
	// The restored state survives a restart of all nodes.
	fresh.stopAll()
	for i := range 3 {
		fresh.startNode(i)
	}
	generation := uint64(0)
	fresh.waitUntil("the restored spec is there again", func() bool {
		generation = fresh.nodes[0].State().Generation
		return fresh.nodes[0].State().SpecVersion == version
	})
	if generation < last.Generation {
		t.Fatalf("the generation is %d after a restart, and was %d or more", generation, last.Generation)
	}
}

// TestRestoreLosesNoWrite writes while the leader restores an archive, after it has read the state to be replaced.
// The write waits for the restore: once it is acknowledged, it is in force.
func TestRestoreLosesNoWrite(t *testing.T) {
	t.Parallel()
	var during atomic.Pointer[func()]
	c := newTestCluster(t, false, func(cfg *consensus.Config) {
		cfg.HoldTimes = func([]byte) consensus.HoldTimes {
			if f := during.Swap(nil); f != nil {
				(*f)()
			}
			return consensus.HoldTimes{}
		}
	})
	c.doAsLeader(func(n *consensus.Node) error {
		s, err := n.ReadLinearizable(c.newContext())
		if err == nil && s.SpecVersion == 0 {
			_, err = n.PutSpec(c.newContext(), 0, []byte("one"), "a")
		}
		return err
	})
	archive, err := c.nodes[c.awaitLeader()].EncodeArchive()
	if err != nil {
		t.Fatal(err)
	}
	c.doAsLeader(func(n *consensus.Node) error {
		written := make(chan error, 1)
		write := func() {
			go func() { written <- n.PutDrain(c.newContext(), consensus.Drain{Path: "eu", Reason: "test", Actor: "a"}) }()
			select {
			case err := <-written: // which is wrong; whether the write is lost is seen below
				written <- err
			case <-time.After(300 * time.Millisecond): // it waits for the restore
			}
		}
		during.Store(&write)
		if _, err := n.RestoreArchive(c.newContext(), archive, testAuthor); err != nil {
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
		s, err := n.ReadLinearizable(c.newContext())
		if err == nil && len(s.Drains) != 1 {
			t.Fatalf("the write was confirmed, and the drains in force are %+v", s.Drains)
		}
		return err
	})
}

// TestRecoverFromALostMajority: one node of three remains. Alone it cannot write. After recovery it can, keeps the
// committed state, and accepts new members.
func TestRecoverFromALostMajority(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, true, nil)
	if _, err := c.nodes[c.awaitLeader()].PutSpec(c.newContext(), 0, []byte("one"), "a"); err != nil {
		t.Fatal(err)
	}
	c.awaitSameState()
	for i := range 3 {
		c.stopNode(i)
	}
	cfg := consensus.Config{ID: "g1", Dir: c.dirs[0], Certs: c.certs[0], Peers: c.peers}
	s, err := consensus.RecoverNode(cfg, false)
	if err != nil || string(s.Spec) != "one" || s.Generation == 0 {
		t.Fatalf("recovering: %+v, %v", s, err)
	}
	c.startNode(0)
	n := c.nodes[0]
	c.waitUntil("it leads alone", n.IsLeader)
	if got := n.State().Generation; got != s.Generation {
		t.Fatalf("it starts with generation %d, recovered with %d", got, s.Generation)
	}
	if got := n.Members(); len(got) != 1 || got[0].ID != "g1" || !got[0].Voter {
		t.Fatalf("members after recovery: %+v", got)
	}
	if v, err := n.PutSpec(c.newContext(), 1, []byte("two"), "a"); err != nil || v != 2 {
		t.Fatalf("writing after recovery: %d, %v", v, err)
	}
	c.dirs[1] = t.TempDir() // the second machine comes back wiped
	c.configure = func(cfg *consensus.Config) { cfg.Join = true }
	c.startNode(1)
	if err := n.AddMember(c.newContext(), c.peers[1], true, testAuthor); err != nil {
		t.Fatal(err)
	}
	c.waitUntil("the new second node follows", func() bool { return c.nodes[1].State().SpecVersion == 2 })

	if _, err := consensus.RecoverNode(consensus.Config{ID: "g1", Dir: t.TempDir(), Certs: c.certs[0], Peers: c.peers}, false); !errors.Is(err, consensus.ErrNothingToRecover) {
		t.Fatalf("recovering an empty folder: %v", err)
	}
}

func FuzzMembership(f *testing.F) {
	f.Add([]byte(`{"do":"add","id":"g4","addr":"127.0.0.1:1","vote":true}`))
	f.Add([]byte(`{"do":"lead"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := consensus.DecodeMembership(b); err == nil && m.Op != "add" && m.Op != "remove" && m.Op != "lead" {
			t.Fatalf("took %+v", m)
		}
	})
}

// TestRestartWithoutLeaderKeepsStateAfterMembershipChange adds a voter, writes a spec and restarts one node alone: it
// answers from the spec. Raft replays no entries from the first membership change after a snapshot on.
func TestRestartWithoutLeaderKeepsStateAfterMembershipChange(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, true, nil)
	lead := c.awaitLeader()
	c.joinNode("g4")
	c.retryChange(func() error { return c.nodes[lead].AddMember(c.newContext(), c.peers[3], true, testAuthor) })
	c.retryChange(func() error {
		_, err := c.nodes[0].PutSpec(c.newContext(), 0, []byte("one"), "a")
		return err
	})
	c.waitUntil("the node has applied the spec", func() bool { return string(c.nodes[0].State().Spec) == "one" })
	c.awaitSnapshot(0)
	c.stopAll()
	c.startNode(0)
	c.waitUntil("the node answers from the spec without a leader", func() bool { return string(c.nodes[0].State().Spec) == "one" })
}

// awaitSnapshot waits until a node has a snapshot besides the one with which it started.
func (c *testCluster) awaitSnapshot(i int) {
	c.t.Helper()
	c.waitUntil("the node has a snapshot", func() bool {
		snaps, err := os.ReadDir(filepath.Join(c.dirs[i], "snapshots"))
		return err == nil && len(snaps) > 1 && !slices.ContainsFunc(snaps, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), ".tmp") })
	})
}
