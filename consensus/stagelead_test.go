package consensus_test

import (
	"errors"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
)

// TestStagePassesALeadersDeath: what the old leader wrote down, the next one goes on from, and ends.
func TestStagePassesALeadersDeath(t *testing.T) {
	c := newCluster(t, false, nil)
	ctx := t.Context()
	lead := c.leader()
	if _, err := c.nodes[lead].PutSpec(ctx, 0, []byte("one"), "alice"); err != nil {
		t.Fatal(err)
	}
	n, err := c.nodes[(lead+1)%3].Change(ctx, consensus.Change{
		BasedOn: 1, Body: []byte("two"), By: consensus.By{Actor: "alice"}, Trial: &consensus.Trial{Regions: []string{"eu"}, Window: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.leading(func(x *consensus.Node) error { return x.MarkStage(ctx, n, 30*time.Minute, "fine") })
	lead = c.leader()
	c.nodes[lead].Kill()
	c.nodes[lead] = nil
	next := c.nodes[c.leader()]
	if err := next.Barrier(ctx); err != nil {
		t.Fatal(err)
	}
	g := next.State().Stage
	if g == nil || g.Number != n || g.Elapsed != 30*time.Minute || g.Figures != "fine" {
		t.Fatalf("the next leader holds %+v", g)
	}
	if v, err := next.EndStage(ctx, n, true, consensus.By{Actor: "guard"}, "fine"); err != nil || v != 2 || string(next.State().Spec) != "two" {
		t.Fatalf("promoted as %d, %v", v, err)
	}
	if _, err := next.EndStage(ctx, n, true, consensus.By{}, ""); !errors.As(err, new(consensus.ErrRefused)) {
		t.Fatalf("ended twice: %v", err)
	}
}
