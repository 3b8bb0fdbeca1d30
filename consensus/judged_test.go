package consensus_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/spillway-lb/spillway/consensus"
)

// TestACommittedSpecIsJudgedOnce holds that a check, which may take long, is made by the leader alone: followers and a
// node that starts again, with all its log before it, take the leader's word.
func TestACommittedSpecIsJudgedOnce(t *testing.T) {
	judged := map[string]*atomic.Int64{name(0): {}, name(1): {}, name(2): {}}
	c := newCluster(t, true, func(cfg *consensus.Config) {
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
	n := c.nodes[(c.leader()+1)%3]
	for v := range uint64(specs) {
		if _, err := n.PutSpec(c.ctx(), v, fmt.Appendf(nil, "spec %d", v), "a"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.PutSpec(c.ctx(), specs, []byte("bad"), "a"); !errors.As(err, new(consensus.ErrRefused)) {
		t.Fatalf("a bad spec: %v", err)
	}
	c.converge()
	total := int64(0)
	for _, x := range judged {
		total += x.Load()
	}
	if total < specs+1 || total > specs+1+10 { // one more for each write that had to be sent again
		t.Errorf("%d specs were judged %d times", specs+1, total)
	}
	c.stopAll()
	for _, x := range judged {
		x.Store(0)
	}
	for i := range 3 {
		c.start(i)
	}
	c.eventually("the log is replayed", func() bool { return c.nodes[0].State().SpecVersion == specs })
	if got := judged[name(0)].Load(); got != 0 {
		t.Errorf("a node that started again judged %d specs of its log", got)
	}
}
