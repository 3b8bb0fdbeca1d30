package consensus_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// TestUnlistedNodeCannotSpeakRaft connects a global node with a valid certificate that is in no list, by both
// protocols.
func TestUnlistedNodeCannotSpeakRaft(t *testing.T) {
	t.Parallel()
	var log testkit.LogBuffer
	c := newTestCluster(t, false, func(cfg *consensus.Config) { cfg.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	n := c.nodes[c.awaitLeader()]
	extra := c.issueCerts(identity.ID{TrustDomain: testDomain, Role: identity.RoleGlobal, Name: "g9"})
	before := n.RefusedConns()
	for range 3 {
		checkConnRefused(t, n.Addr().String(), extra, "spillway-raft/1")
	}
	c.waitUntil("three refusals counted", func() bool { return n.RefusedConns() == before+3 })
	refusal := func() []string { return log.Lines("peer refused", "g9", "raft.peers") } // with what to do about it
	c.waitUntil("the refusal logged", func() bool { return len(refusal()) > 0 })
	if got := refusal(); len(got) != 1 {
		t.Errorf("refusals were logged %d times, want once:\n%s", len(got), strings.Join(got, ""))
	}
	if _, err := n.PutSpec(c.newContext(), 0, []byte("one"), "a"); err != nil {
		t.Fatalf("the cluster no longer writes: %v", err)
	}
}

// TestLogLinesAboutADownPeerAreDeduplicated stops a follower for many heartbeats and restarts it.
func TestLogLinesAboutADownPeerAreDeduplicated(t *testing.T) {
	t.Parallel()
	logs := map[string]*testkit.LogBuffer{}
	c := newTestCluster(t, false, func(cfg *consensus.Config) {
		if logs[cfg.ID] == nil {
			logs[cfg.ID] = &testkit.LogBuffer{}
		}
		cfg.Log = slog.New(slog.NewTextHandler(logs[cfg.ID], nil))
		cfg.Heartbeat = time.Second // a busy machine must not change the leader meanwhile
	})
	lead := c.awaitLeader()
	log, down := logs[nodeName(lead)], (lead+1)%3
	c.stopNode(down)
	c.waitUntil("a failed heartbeat logged", func() bool { return len(log.Lines("failed to heartbeat")) > 0 })
	time.Sleep(2 * time.Second) // about seven more would be logged in this time
	// A peer that stops slowly may answer once more in between: each absence is logged once.
	returned := func() int { return len(log.Lines("raft peer is back", "peer="+nodeName(down))) }
	back := returned()
	if got := log.Lines("failed to heartbeat", c.peers[down].Addr); len(got) != 1+back {
		t.Errorf("failed heartbeats were logged %d times within a minute and %d absences:\n%s", len(got), 1+back, strings.Join(got, ""))
	}
	c.startNode(down)
	c.waitUntil("its return logged", func() bool { return returned() > back })
	if got := returned(); got != back+1 {
		t.Errorf("the return was logged %d times, want once for each absence:\n%s", got-back, strings.Join(log.Lines("raft peer is back"), ""))
	}
}

// TestFollowersLearnOfCommitsAtOnce checks that followers learn of a commit without waiting for a heartbeat.
func TestFollowersLearnOfCommitsAtOnce(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, false, func(cfg *consensus.Config) { cfg.Heartbeat = 3 * time.Second })
	n := c.nodes[c.awaitLeader()]
	fastest := time.Minute
	for v := range uint64(5) {
		begun := time.Now()
		if _, err := n.PutSpec(c.newContext(), v, []byte("spec"), "a"); err != nil {
			t.Fatal(err)
		}
		c.awaitSameState()
		fastest = min(fastest, time.Since(begun))
	}
	if fastest > time.Second { // the fallback alone would take 1.5 to 3 s each time; a busy machine may delay some of them
		t.Errorf("the fastest of five versions was with the followers after %s", fastest)
	}
}
