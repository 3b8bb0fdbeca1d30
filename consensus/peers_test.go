package consensus_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/identity"
)

// lines is a log that may be read while it is written.
type lines struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(b)
}

// with returns the lines that contain all of the texts.
func (l *lines) with(texts ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.out.String()) {
		all := true
		for _, t := range texts {
			all = all && strings.Contains(line, t)
		}
		if all {
			found = append(found, line)
		}
	}
	return found
}

// TestOnlyVotersSpeakRaft lets a global node with a proper certificate, but in nobody's list, knock at both protocols.
func TestOnlyVotersSpeakRaft(t *testing.T) {
	var log lines
	c := newCluster(t, false, func(cfg *consensus.Config) { cfg.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	n := c.nodes[c.leader()]
	extra := c.cert(identity.ID{TrustDomain: domain, Role: identity.RoleGlobal, Name: "g9"})
	before := n.Refused()
	for range 3 {
		knock(t, n.Addr().String(), extra, "spillway-raft/1")
	}
	c.eventually("three refusals counted", func() bool { return n.Refused() == before+3 })
	refusal := func() []string { return log.with("peer refused", "g9", "raft.peers") } // with what to do about it
	c.eventually("the refusal logged", func() bool { return len(refusal()) > 0 })
	if got := refusal(); len(got) != 1 {
		t.Errorf("refusals were logged %d times, want once:\n%s", len(got), strings.Join(got, ""))
	}
	if _, err := n.PutSpec(c.ctx(), 0, []byte("one"), "a"); err != nil {
		t.Fatalf("the cluster no longer writes: %v", err)
	}
}

// TestADownPeerIsNotLoggedForEver stops a follower for many heartbeats and brings it back.
func TestADownPeerIsNotLoggedForEver(t *testing.T) {
	logs := map[string]*lines{}
	c := newCluster(t, false, func(cfg *consensus.Config) {
		if logs[cfg.ID] == nil {
			logs[cfg.ID] = &lines{}
		}
		cfg.Log = slog.New(slog.NewTextHandler(logs[cfg.ID], nil))
		cfg.Heartbeat = time.Second // a busy machine must not change the leader meanwhile
	})
	lead := c.leader()
	log, down := logs[name(lead)], (lead+1)%3
	c.stop(down)
	c.eventually("a failed heartbeat logged", func() bool { return len(log.with("failed to heartbeat")) > 0 })
	time.Sleep(2 * time.Second) // about seven more would be logged in this time
	// A peer that takes its time to stop may be heard once more in between: each absence is logged once.
	returned := func() int { return len(log.with("raft peer is back", "peer="+name(down))) }
	back := returned()
	if got := log.with("failed to heartbeat", c.peers[down].Addr); len(got) != 1+back {
		t.Errorf("failed heartbeats were logged %d times within a minute and %d absences:\n%s", len(got), 1+back, strings.Join(got, ""))
	}
	c.start(down)
	c.eventually("its return logged", func() bool { return returned() > back })
	if got := returned(); got != back+1 {
		t.Errorf("the return was logged %d times, want once for each absence:\n%s", got-back, strings.Join(log.with("raft peer is back"), ""))
	}
}

// TestFollowersHearOfCommitsAtOnce holds that nobody waits for a heartbeat to learn what the leader committed.
func TestFollowersHearOfCommitsAtOnce(t *testing.T) {
	c := newCluster(t, false, func(cfg *consensus.Config) { cfg.Heartbeat = 3 * time.Second })
	n := c.nodes[c.leader()]
	for v := range uint64(5) {
		begun := time.Now()
		if _, err := n.PutSpec(c.ctx(), v, []byte("spec"), "a"); err != nil {
			t.Fatal(err)
		}
		c.converge()
		if took := time.Since(begun); took > time.Second { // the fallback alone would take 1.5 to 3 s
			t.Errorf("followers had version %d after %s", v+1, took)
		}
	}
}
