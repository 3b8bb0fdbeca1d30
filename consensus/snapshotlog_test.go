package consensus_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/spillway-lb/spillway/consensus"
)

// TestLargeEntriesMakeASnapshot writes a few specs of megabytes: far fewer entries than raft waits for.
func TestLargeEntriesMakeASnapshot(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, true, nil)
	for v := range 8 {
		c.doAsLeader(func(n *consensus.Node) error {
			if err := n.AwaitBarrier(c.newContext()); err != nil {
				return err
			}
			_, err := n.PutSpec(c.newContext(), n.State().SpecVersion, bytes.Repeat([]byte{'a' + byte(v)}, 1<<20), "a")
			return err
		})
	}
	c.awaitSameState()
	for _, dir := range c.dirs {
		c.waitUntil("a snapshot beyond the first entry", func() bool {
			found, err := filepath.Glob(filepath.Join(dir, "snapshots", "*", "state.bin"))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				if s, err := os.Stat(f); err == nil && s.Size() > 4<<20 {
					return true
				}
			}
			return false
		})
	}
}
