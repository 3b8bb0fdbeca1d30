package consensus_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/spillway-lb/spillway/consensus"
)

// TestNodeWithAFullDiskStepsDownAndRecovers fills the leader's disk: it steps down and keeps answering, the others
// accept writes, and with free space again it follows. With all disks full no write succeeds, no node ends, and all
// continue once there is space.
func TestNodeWithAFullDiskStepsDownAndRecovers(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, true, nil)
	for _, cause := range []error{syscall.ENOSPC, fmt.Errorf("fsync: %w", syscall.EIO)} {
		lead := c.awaitLeader()
		full := c.nodes[lead]
		was := full.State().SpecVersion
		full.FailDisk(cause)
		other := c.nodes[(lead+1)%3]
		var err error
		for err = cause; err != nil; { // the first write is lost with its leader
			if _, err = other.PutSpec(c.newContext(), other.State().SpecVersion, []byte("while one is full"), "a"); err != nil && !errors.Is(err, consensus.ErrUnknownOutcome) && !errors.As(err, new(consensus.ErrConflict)) {
				t.Fatalf("writing while the leader's disk answers %v: %v", cause, err)
			}
		}
		if full.IsLeader() || full.State().SpecVersion < was || full.FailedWrites() == 0 {
			t.Fatalf("with its disk gone, leader %v, spec %d (was %d), %d writes failed", full.IsLeader(), full.State().SpecVersion, was, full.FailedWrites())
		}
		spare := func(want int, failing bool) func() bool {
			return func() bool {
				all := other.ProbeMembers(c.newContext())
				voters, able, left := consensus.CountSpareVoters(all)
				return voters == 3 && able == 2+want && left == want && all[lead].DiskFailing == failing && full.DiskFailing() == failing
			}
		}
		c.waitUntil("the others know that it cannot write, and none more may be lost", spare(0, true))
		full.FailDisk(nil)
		c.waitUntil("the others know that it can write again", spare(1, false))
		c.awaitLeader()
		c.awaitSameState()
		if full.State().SpecVersion <= was {
			t.Fatalf("with room again the node is at spec %d", full.State().SpecVersion)
		}
	}

	version := c.nodes[0].State().SpecVersion
	for _, n := range c.nodes {
		n.FailDisk(syscall.ENOSPC)
	}
	_, err := c.nodes[0].PutSpec(c.newContext(), version, []byte("never"), "a")
	if !errors.Is(err, consensus.ErrNoLeader) && !errors.Is(err, consensus.ErrUnknownOutcome) {
		t.Fatalf("writing with all disks full: %v", err)
	}
	for _, n := range c.nodes {
		if n.State().SpecVersion != version {
			t.Fatalf("spec %d was agreed on with all disks full", n.State().SpecVersion)
		}
		n.FailDisk(nil)
	}
	c.awaitLeader()
	if _, err := c.nodes[1].ReadLinearizable(c.newContext()); err != nil {
		t.Fatalf("reading when there is room again: %v", err)
	}
	if _, err := c.nodes[1].PutSpec(c.newContext(), c.nodes[1].State().SpecVersion, []byte("again"), "a"); err != nil {
		t.Fatalf("writing when there is room again: %v", err)
	}
	c.nodes[0].FailDisk(syscall.ENOSPC) // a node whose disk is full can be stopped
}
