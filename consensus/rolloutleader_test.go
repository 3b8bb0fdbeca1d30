package consensus_test

import (
	"errors"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
)

// TestRolloutContinuesUnderTheNextLeader: the next leader continues from the progress that the old leader recorded, and
// ends the stage.
func TestRolloutContinuesUnderTheNextLeader(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, false, nil)
	ctx := t.Context()
	lead := c.awaitLeader()
	if _, err := c.nodes[lead].PutSpec(ctx, 0, []byte("one"), "alice"); err != nil {
		t.Fatal(err)
	}
	n, err := c.nodes[(lead+1)%3].PutSpecChange(ctx, consensus.SpecChange{
		BasedOn: 1, Body: []byte("two"), By: consensus.Attribution{Actor: "alice"}, Rollout: &consensus.RolloutConfig{Regions: []string{"eu"}, Window: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.doAsLeader(func(x *consensus.Node) error { return x.RecordRolloutProgress(ctx, n, 30*time.Minute, "fine") })
	lead = c.awaitLeader()
	c.nodes[lead].Kill()
	c.nodes[lead] = nil
	next := c.nodes[c.awaitLeader()]
	if err := next.AwaitBarrier(ctx); err != nil {
		t.Fatal(err)
	}
	g := next.State().Rollout
	if g == nil || g.Number != n || g.Elapsed != 30*time.Minute || g.Figures != "fine" {
		t.Fatalf("the next leader holds %+v", g)
	}
	if v, err := next.EndRollout(ctx, n, true, consensus.Attribution{Actor: "guard"}, "fine"); err != nil || v != 2 || string(next.State().Spec) != "two" {
		t.Fatalf("promoted as %d, %v", v, err)
	}
	if _, err := next.EndRollout(ctx, n, true, consensus.Attribution{}, ""); !errors.As(err, new(consensus.ErrRefused)) {
		t.Fatalf("ended twice: %v", err)
	}
}
