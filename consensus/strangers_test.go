package consensus_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
)

// TestIdleStrangersDoNotStopWrites holds 200 connections to every Raft port that send no byte, for as long as the test
// runs. Writes through a follower still reach the leader, and a node that starts meanwhile takes part.
func TestIdleStrangersDoNotStopWrites(t *testing.T) {
	const strangers, writes = 200, 10
	c := layCluster(t, false, nil)
	for i, n := range c.nodes {
		n.KeepStrangers(time.Hour)
		c.start(i)
	}
	c.leader()
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
		follower := c.nodes[(c.leader()+1)%3]
		_, err := follower.PutSpec(c.ctx(), v, []byte("spec"), "a")
		for errors.Is(err, consensus.ErrUnknownOutcome) { // a leader was deposed meanwhile
			_, err = follower.PutSpec(c.ctx(), v, []byte("spec"), "a")
		}
		if conflict := (consensus.ErrConflict{}); err != nil && (!errors.As(err, &conflict) || conflict.Current != v+1) {
			t.Fatalf("write %d through a follower: %v", v, err)
		}
	}
	if n := c.nodes[0].Refused(); n == 0 {
		t.Error("no connection was evicted: the test shows nothing")
	}
	edge := c.join("edge")
	c.insist(func() error { return c.nodes[0].AddMember(c.ctx(), c.peers[3], false, by) })
	c.eventually("a node that starts meanwhile has the spec", func() bool { return edge.State().SpecVersion == writes })
}
