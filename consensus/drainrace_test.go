package consensus_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
)

// TestRacedDrainsAreJudgedByTheLog proposes two drains at once through two nodes, neither of which saw the other, where
// only one may pass: exactly one is refused each time, and all nodes have the same state.
func TestRacedDrainsAreJudgedByTheLog(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, false, func(cfg *consensus.Config) {
		cfg.DrainRules = func([]byte, time.Time) consensus.DrainRules {
			return consensus.DrainRules{MinRegions: 2, Regions: []consensus.RuledRegion{{Name: "ap"}, {Name: "eu"}, {Name: "us"}}}
		}
	})
	c.awaitLeader()
	paths := []string{"ap", "eu"}
	for round := range 10 {
		var wg sync.WaitGroup
		var errs [2]error
		for i := range paths {
			wg.Go(func() {
				errs[i] = c.nodes[(round+i)%3].PutDrain(c.newContext(), consensus.Drain{Path: paths[i], Actor: "a"})
			})
		}
		wg.Wait()
		c.awaitSameState()
		passed := 0
		for i := range paths {
			if errs[i] == nil {
				passed++
				if err := c.nodes[round%3].DeleteDrain(c.newContext(), paths[i], consensus.Attribution{Actor: "a"}); err != nil {
					t.Fatal(err)
				}
			} else if !errors.As(errs[i], new(consensus.ErrRefused)) {
				t.Errorf("round %d: drain of %s: %v", round, paths[i], errs[i])
			}
		}
		if passed != 1 {
			t.Errorf("round %d: %d drains passed: %v", round, passed, errs)
		}
	}
}
