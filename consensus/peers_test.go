package consensus_test

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// TestLogLinesAboutADownPeerAreDeduplicated kills a follower for many heartbeats and restarts it.
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
	c.nodes[down].Kill()
	c.nodes[down] = nil
	ln, dials := refuseRaftStreams(t, c.peers[down].Addr)
	c.waitUntil("a failed heartbeat logged", func() bool { return len(log.Lines("failed to heartbeat")) > 0 })
	c.waitUntil("many failed dials", func() bool { return dials.Load() >= 16 }) // about half of them for heartbeats, the others for entries
	returned := func() int { return len(log.Lines("raft peer is back", "peer="+nodeName(down))) }
	if got := log.Lines("failed to heartbeat", c.peers[down].Addr); len(got) != 1 || returned() != 0 {
		t.Errorf("failed heartbeats were logged %d times within a minute and %d returns, want one and none:\n%s", len(got), returned(), strings.Join(got, ""))
	}
	_ = ln.Close()
	c.startNode(down)
	c.waitUntil("its return logged", func() bool { return returned() > 0 })
	if got := returned(); got != 1 {
		t.Errorf("the return was logged %d times, want once:\n%s", got, strings.Join(log.Lines("raft peer is back"), ""))
	}
}

// refuseRaftStreams listens in place of a node that is down. It fails every handshake, and counts those for Raft.
func refuseRaftStreams(t *testing.T, addr string) (net.Listener, *atomic.Int32) {
	t.Helper()
	dials := new(atomic.Int32)
	refuse := &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		if slices.Contains(h.SupportedProtos, "spillway-raft/1") {
			dials.Add(1)
		}
		return nil, errors.New("this node is down")
	}}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_ = tls.Server(conn, refuse).Handshake()
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		accepting.Wait()
	})
	return ln, dials
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

// checkConnRefused connects with a certificate that must be refused, and fails the test if it is admitted.
func checkConnRefused(t *testing.T, addr string, certs *identity.Certs, alpn string) {
	t.Helper()
	cfg := certs.ClientTLS(alpn, nil)
	cfg.VerifyConnection = nil // the refusal must be the node's, not the client's
	conn, err := tls.Dial("tcp", addr, cfg)
	if err != nil {
		return
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Fatalf("%s spoke to %s over %s", addr, certs.ID(), alpn)
	}
}

// TestIdleConnectionsDoNotStopWrites keeps 200 connections to every Raft port open that send no byte, for the whole
// test. Writes through a follower still reach the leader, and a node that starts meanwhile joins.
func TestIdleConnectionsDoNotStopWrites(t *testing.T) {
	t.Parallel()
	const strangers, writes = 200, 10
	c := newUnstartedCluster(t, false, nil)
	for i, n := range c.nodes {
		n.SetHandshakeTimeout(time.Hour)
		c.startNode(i)
	}
	c.awaitLeader()
	for _, p := range c.peers {
		for range strangers {
			conn, err := net.Dial("tcp", p.Addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
		}
	}
	for v := range uint64(writes) {
		follower := c.nodes[(c.awaitLeader()+1)%3]
		_, err := follower.PutSpec(c.newContext(), v, []byte("spec"), "a")
		for errors.Is(err, consensus.ErrUnknownOutcome) { // a leader was deposed meanwhile
			_, err = follower.PutSpec(c.newContext(), v, []byte("spec"), "a")
		}
		if conflict := (consensus.ErrConflict{}); err != nil && (!errors.As(err, &conflict) || conflict.Current != v+1) {
			t.Fatalf("write %d through a follower: %v", v, err)
		}
	}
	if n := c.nodes[0].RefusedConns(); n == 0 {
		t.Error("no connection was evicted: the test shows nothing")
	}
	edge := c.joinNode("edge")
	c.retryChange(func() error { return c.nodes[0].AddMember(c.newContext(), c.peers[3], false, testAuthor) })
	c.waitUntil("a node that starts meanwhile has the spec", func() bool { return edge.State().SpecVersion == writes })
}
