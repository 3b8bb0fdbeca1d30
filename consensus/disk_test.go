package consensus_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/spillway-lb/spillway/consensus"
)

// TestFullDisk fills the leader's disk: it steps down and answers on, the others take writes, and with room again it
// follows. With all disks full nothing is written, nothing ends, and all go on when there is room.
func TestFullDisk(t *testing.T) {
	c := newCluster(t, true, nil)
	for _, cause := range []error{syscall.ENOSPC, fmt.Errorf("fsync: %w", syscall.EIO)} {
		lead := c.leader()
		full := c.nodes[lead]
		was := full.State().SpecVersion
		full.BreakDisk(cause)
		other := c.nodes[(lead+1)%3]
		var err error
		for err = cause; err != nil; { // the first is lost with its leader
			if _, err = other.PutSpec(c.ctx(), other.State().SpecVersion, []byte("while one is full"), "a"); err != nil && !errors.Is(err, consensus.ErrUnknownOutcome) && !errors.As(err, new(consensus.ErrConflict)) {
				t.Fatalf("writing while the leader's disk answers %v: %v", cause, err)
			}
		}
		if full.IsLeader() || full.State().SpecVersion < was || full.FailedWrites() == 0 {
			t.Fatalf("with its disk gone, leader %v, spec %d (was %d), %d writes failed", full.IsLeader(), full.State().SpecVersion, was, full.FailedWrites())
		}
		spare := func(want int, failing bool) func() bool {
			return func() bool {
				all := other.Standings(c.ctx())
				voters, able, left := consensus.Spare(all)
				return voters == 3 && able == 2+want && left == want && all[lead].Failing == failing && full.DiskFailing() == failing
			}
		}
		c.eventually("the others know that it cannot write, and none more may be lost", spare(0, true))
		full.BreakDisk(nil)
		c.eventually("the others know that it can write again", spare(1, false))
		c.leader()
		c.converge()
		if full.State().SpecVersion <= was {
			t.Fatalf("with room again the node is at spec %d", full.State().SpecVersion)
		}
	}

	version := c.nodes[0].State().SpecVersion
	for _, n := range c.nodes {
		n.BreakDisk(syscall.ENOSPC)
	}
	_, err := c.nodes[0].PutSpec(c.ctx(), version, []byte("never"), "a")
	if !errors.Is(err, consensus.ErrNoLeader) && !errors.Is(err, consensus.ErrUnknownOutcome) {
		t.Fatalf("writing with all disks full: %v", err)
	}
	for _, n := range c.nodes {
		if n.State().SpecVersion != version {
			t.Fatalf("spec %d was agreed on with all disks full", n.State().SpecVersion)
		}
		n.BreakDisk(nil)
	}
	c.leader()
	if _, err := c.nodes[1].Read(c.ctx()); err != nil {
		t.Fatalf("reading when there is room again: %v", err)
	}
	if _, err := c.nodes[1].PutSpec(c.ctx(), c.nodes[1].State().SpecVersion, []byte("again"), "a"); err != nil {
		t.Fatalf("writing when there is room again: %v", err)
	}
	c.nodes[0].BreakDisk(syscall.ENOSPC) // a node whose disk is full can be stopped
}
