package consensus_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
)

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
