package consensus_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
)

// TestCommittedSpecIsCheckedOnce checks that only the leader runs a check, which may be slow: followers, and a node
// that restarts and replays its whole log, rely on the leader's mark.
func TestCommittedSpecIsCheckedOnce(t *testing.T) {
	t.Parallel()
	judged := map[string]*atomic.Int64{nodeName(0): {}, nodeName(1): {}, nodeName(2): {}}
	c := newTestCluster(t, true, func(cfg *consensus.Config) {
		mine := judged[cfg.ID]
		cfg.CheckSpec = func(_, next []byte) error {
			mine.Add(1)
			if bytes.Contains(next, []byte("bad")) {
				return errors.New("bad spec")
			}
			return nil
		}
	})
	const specs = 20
	n := c.nodes[(c.awaitLeader()+1)%3]
	for v := range uint64(specs) {
		if _, err := n.PutSpec(c.newContext(), v, fmt.Appendf(nil, "spec %d", v), "a"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.PutSpec(c.newContext(), specs, []byte("bad"), "a"); !errors.As(err, new(consensus.ErrRefused)) {
		t.Fatalf("a bad spec: %v", err)
	}
	c.awaitSameState()
	total := int64(0)
	for _, x := range judged {
		total += x.Load()
	}
	if total < specs+1 || total > specs+1+10 { // one more for each write that had to be sent again
		t.Errorf("%d specs were checked %d times", specs+1, total)
	}
	c.stopAll()
	for _, x := range judged {
		x.Store(0)
	}
	for i := range 3 {
		c.startNode(i)
	}
	c.waitUntil("the log is replayed", func() bool { return c.nodes[0].State().SpecVersion == specs })
	if got := judged[nodeName(0)].Load(); got != 0 {
		t.Errorf("a restarted node checked %d specs of its log", got)
	}
}

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
