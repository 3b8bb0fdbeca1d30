package consensus_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestLargeEntriesMakeASnapshot writes a few specs of megabytes: far fewer entries than raft waits for.
func TestLargeEntriesMakeASnapshot(t *testing.T) {
	c := newCluster(t, true, nil)
	n := c.nodes[c.leader()]
	for v := range uint64(8) {
		if _, err := n.PutSpec(c.ctx(), v, bytes.Repeat([]byte{'a' + byte(v)}, 1<<20), "a"); err != nil {
			t.Fatal(err)
		}
	}
	c.converge()
	for _, dir := range c.dirs {
		c.eventually("a snapshot beyond the first entry", func() bool {
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
