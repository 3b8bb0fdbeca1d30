package consensus

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// slowRestoreHandler delays each restore for longer than raft waits for space in its queues: the goroutine that
// installs a restored state also logs it.
type slowRestoreHandler struct{ slog.Handler }

func (h slowRestoreHandler) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "a new generation of the cluster began") {
		<-time.After(enqueueTimeout + 100*time.Millisecond)
	}
	return nil
}

// TestSlowRestoreIsNotReportedAsFailed: raft chooses at random between an expired timeout and the next step. With a
// timeout, at least one of eight restores fails, but for one run in 256.
func TestSlowRestoreIsNotReportedAsFailed(t *testing.T) {
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			s := newSoloNode(t)
			c := s.nodeConfig(t.TempDir())
			c.Log = slog.New(slowRestoreHandler{slog.NewTextHandler(t.Output(), nil)})
			n, err := New(c)
			if err != nil {
				t.Fatal(err)
			}
			if err := n.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer s.stopNode(n)
			if _, err := n.PutSpec(t.Context(), 0, []byte("spec"), "a"); err != nil {
				t.Fatal(err)
			}
			archive, err := n.EncodeArchive()
			if err != nil {
				t.Fatal(err)
			}
			if version, err := n.RestoreArchive(t.Context(), archive, Attribution{Actor: "op"}); err != nil || version != 2 {
				t.Errorf("a restore of %v: version %d, %v", enqueueTimeout, version, err)
			}
		})
	}
}
